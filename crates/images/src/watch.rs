//! Who waits for an image to be made.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Who is told how the making of an image goes on, and can end it early.
pub struct Watch<'a> {
    say: RefCell<&'a mut dyn FnMut(&str)>,
    interrupt: &'a AtomicBool,
}

impl<'a> Watch<'a> {
    /// `say` is told in lines; `interrupt` turns true when the making shall end early.
    pub fn new(say: &'a mut dyn FnMut(&str), interrupt: &'a AtomicBool) -> Self {
        Self { say: RefCell::new(say), interrupt }
    }

    pub(crate) fn say(&self, line: &str) {
        (self.say.borrow_mut())(line);
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Waits for another run that makes the same image, up to `deadline`.
    pub(crate) fn patience(&self, deadline: Duration) -> impl FnMut(Duration) -> bool {
        let mut told = false;
        move |waited| {
            if !told {
                self.say("another weigh is making it; waiting");
                told = true;
            }
            waited < deadline && !self.interrupted()
        }
    }
}
