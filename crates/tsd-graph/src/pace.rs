//! Divides long work into short pieces.
//!
//! Drawing counts its work. After each piece of about a millisecond it calls a function of the caller, which may
//! let others work first, or stop the drawing. After a stop, the remaining work does nothing.

use std::cell::{Cell, RefCell};

/// Work of a piece. A unit is one processed point, about 20 ns.
const PIECE: usize = 20_000;

/// The pieces of a drawing.
pub(crate) struct Pace<'p> {
    left: Cell<usize>,
    is_stopped: Cell<bool>,
    pause: RefCell<&'p mut dyn FnMut() -> bool>,
}

impl<'p> Pace<'p> {
    /// Calls `pause` after each piece; the work stops if it returns false.
    pub(crate) fn new(pause: &'p mut dyn FnMut() -> bool) -> Self {
        Self { left: Cell::new(PIECE), is_stopped: Cell::new(false), pause: RefCell::new(pause) }
    }

    /// Counts the next work, and pauses before it if the piece is full. Returns false if the work must stop.
    pub(crate) fn goes_on(&self, work: usize) -> bool {
        if self.is_stopped.get() {
            return false;
        }
        if let Some(left) = self.left.get().checked_sub(work) {
            self.left.set(left);
        } else {
            self.left.set(PIECE.saturating_sub(work));
            let goes_on = (self.pause.borrow_mut())();
            self.is_stopped.set(!goes_on);
        }
        !self.is_stopped.get()
    }

    /// True if the work was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }
}

impl std::fmt::Debug for Pace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_piece_pauses_and_a_stop_is_final() {
        let mut pauses = 0;
        let mut pause = || {
            pauses += 1;
            pauses < 3
        };
        let pace = Pace::new(&mut pause);
        let done = (0..10 * PIECE).take_while(|_| pace.goes_on(1)).count();
        assert_eq!(done, 3 * PIECE);
        assert!(pace.is_stopped() && !pace.goes_on(0));
        assert_eq!(pauses, 3);
    }

    #[test]
    fn work_larger_than_a_piece_is_a_piece_of_its_own() {
        let mut pauses = 0;
        let mut pause = || {
            pauses += 1;
            true
        };
        let pace = Pace::new(&mut pause);
        for _ in 0..4 {
            assert!(pace.goes_on(PIECE * 3));
        }
        assert_eq!(pauses, 4);
    }
}
