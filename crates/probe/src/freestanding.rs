//! Replacements for parts of Rust's standard library: the allocator and the panic handler.

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

/// The C library's allocator.
struct Malloc;

// SAFETY: malloc, calloc, realloc and free keep the contract of `GlobalAlloc` for alignments up to
// that of max_align_t, two words on all targets of this project; greater ones go to aligned_alloc,
// whose blocks free takes as well.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 2 * size_of::<usize>() {
            // SAFETY: any size is allowed.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        let size = layout.size().next_multiple_of(layout.align());
        // SAFETY: the alignment is a power of two and the size a multiple of it.
        unsafe { libc::aligned_alloc(layout.align(), size) }.cast()
    }

    unsafe fn dealloc(&self, pointer: *mut u8, _: Layout) {
        // SAFETY: the caller passes what `alloc` or `realloc` returned.
        unsafe { libc::free(pointer.cast()) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= 2 * size_of::<usize>() {
            // SAFETY: the caller passes what `alloc` or `realloc` returned.
            return unsafe { libc::realloc(pointer.cast(), size) }.cast();
        }
        // SAFETY: the caller guarantees a size that does not overflow when rounded up.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both blocks are that long and do not overlap.
            unsafe {
                core::ptr::copy_nonoverlapping(pointer, new, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
        }
        new
    }
}

#[global_allocator]
static ALLOCATOR: Malloc = Malloc;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let place = info.location().map_or("", |location| location.file());
    crate::say(crate::standard(2), "weigh-probe: this is a bug, in ");
    crate::say(crate::standard(2), place);
    crate::say(crate::standard(2), "\n");
    // SAFETY: always allowed.
    unsafe { libc::abort() }
}

/// Referenced by the unwind tables of `core`; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

// The static C library depends on its compiler's runtime, and that on the C library.
#[cfg(target_env = "gnu")]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle")]
#[link(name = "gcc", kind = "static", modifiers = "-bundle")]
#[link(name = "c", kind = "static", modifiers = "-bundle")]
unsafe extern "C" {}

/// Called by the landing pads of `alloc`; nothing unwinds here. The C library of musl comes without
/// the library that has it.
#[cfg(target_env = "musl")]
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    // SAFETY: always allowed.
    unsafe { libc::abort() }
}
