//! Sensors that say what they are told, for tests of what uses sensors.

use crate::{Attached, Sensors};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use weigh_host::accounts::Accounts;
use weigh_model::{HostSettings, Observed};

/// What was asked of [`Scripted`], in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// With the CPUs in use.
    Attach(Attached, Vec<u32>),
    /// See [`Sensors::begin`].
    Begin(Attached),
    /// See [`Sensors::end`].
    End(Attached),
    /// See [`Sensors::detach`].
    Detach(Attached),
}

/// Sensors for tests: every window gives the next of the observations it was made with, and after
/// the last of them nothing is seen but the CPUs in use and a window of 1 s. It measures nothing
/// and must not be used for anything that is reported.
#[derive(Debug, Clone, Default)]
pub struct Scripted {
    script: VecDeque<Observed>,
    settings: HostSettings,
    cpus: Vec<Vec<u32>>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Scripted {
    /// From what the windows shall give, one each.
    pub fn new(script: impl IntoIterator<Item = Observed>) -> Self {
        Self { script: script.into_iter().collect(), ..Self::default() }
    }

    /// With these settings of the host.
    #[must_use]
    pub fn with_settings(mut self, settings: HostSettings) -> Self {
        self.settings = settings;
        self
    }

    /// The calls so far. The list goes on growing when the sensors have been given away.
    pub fn calls(&self) -> Arc<Mutex<Vec<Call>>> {
        Arc::clone(&self.calls)
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

impl Sensors for Scripted {
    fn settings(&mut self) -> HostSettings {
        self.settings.clone()
    }

    fn attach(&mut self, _: &Accounts, cpus: &[u32]) -> Attached {
        let instance = Attached(self.cpus.len() as u64);
        self.cpus.push(cpus.into());
        self.note(Call::Attach(instance, cpus.into()));
        instance
    }

    fn begin(&mut self, instance: Attached) {
        self.note(Call::Begin(instance));
    }

    fn end(&mut self, instance: Attached) -> Observed {
        self.note(Call::End(instance));
        let cpus = usize::try_from(instance.0).ok().and_then(|index| self.cpus.get(index)).cloned();
        self.script.pop_front().unwrap_or_else(|| Observed {
            window_ns: 1_000_000_000,
            cpus: cpus.unwrap_or_default(),
            settings: self.settings.clone(),
            ..Observed::default()
        })
    }

    fn detach(&mut self, instance: Attached) {
        self.note(Call::Detach(instance));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_the_script() {
        let scripted = Observed { window_ns: 7, ..Observed::default() };
        let mut sensors = Scripted::new([scripted.clone()]);
        let calls = sensors.calls();
        let instance = sensors.attach(&Accounts::default(), &[1]);
        sensors.begin(instance);
        assert_eq!(sensors.end(instance), scripted);
        let quiet = sensors.end(instance);
        assert_eq!((quiet.cpus, quiet.window_ns, quiet.foreign.ns), (vec![1], 1_000_000_000, 0));
        sensors.detach(instance);
        assert_eq!(calls.lock().unwrap().len(), 5);
        assert_eq!(calls.lock().unwrap()[1], Call::Begin(instance));
    }
}
