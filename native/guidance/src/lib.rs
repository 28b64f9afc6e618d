//! llguidance's C interface, exported from a shared library, and one function beside it.
//!
//! A crate that merely depends on llguidance exports nothing: its `extern "C"` functions are part of the library because they
//! are re-exported here. sdk/guidance counts them.

pub use llguidance::ffi::*;

use std::ffi::{c_char, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What sdk/guidance asks for before anything else. Raise it when a function changes that is used there.
const ABI: u32 = 1;

/// A grammar is compiled by recursion over a caller's text: on this much stack, whatever thread asks.
const STACK: usize = 256 << 20; // of address space; only what is touched is memory

#[no_mangle]
pub extern "C" fn clade_guidance_abi() -> u32 {
    ABI
}

struct Shared<T>(T);
// The caller waits, so what the pointers lead to is used by one thread at a time.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    fn take(self) -> T {
        self.0
    }
}

/// `llg_new_matcher` on a thread with a stack of its own. Null when there is no thread to be had, or after a panic that
/// llguidance did not catch; every other error is asked of the matcher.
///
/// # Safety
/// As for `llg_new_matcher`.
#[no_mangle]
pub unsafe extern "C" fn clade_guidance_new_matcher(
    init: *const LlgConstraintInit,
    kind: *const c_char,
    text: *const c_char,
) -> *mut LlgMatcher {
    catch_unwind(AssertUnwindSafe(|| {
        let job = Shared((init, CStr::from_ptr(kind), CStr::from_ptr(text)));
        std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || {
                let (init, kind, text) = job.take();
                Shared(llg_new_matcher(&*init, kind.as_ptr(), text.as_ptr()))
            })
            .ok()
            .and_then(|thread| thread.join().ok())
            .map_or(std::ptr::null_mut(), Shared::take)
    }))
    .unwrap_or(std::ptr::null_mut())
}
