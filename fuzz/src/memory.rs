//! How much memory a piece of work takes, counted by the allocator.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting what each thread asks of it.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
    static MAX_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn take(bytes: isize) {
    let held = HELD_BYTES.get() + bytes;
    HELD_BYTES.set(held);
    MAX_BYTES.set(MAX_BYTES.get().max(held));
}

// SAFETY: the system's allocator does the work; the cells of the counts are constants that need no allocation and no
// destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        take(-(layout.size() as isize));
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        take(bytes as isize - layout.size() as isize);
        unsafe { System.realloc(place, layout, bytes) }
    }
}

/// Does a piece of work on this thread; with its result, the most bytes that it held at any time.
pub fn max_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD_BYTES.get();
    MAX_BYTES.set(before);
    let done = work();
    (done, (MAX_BYTES.get() - before).max(0) as usize)
}
