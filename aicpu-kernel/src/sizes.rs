//! Which launches share one graph for all sizes of a class: those whose class was seen with a second count.
//!
//! A step that repeats has one count and an exact graph, which is cheaper to make; a serving load has thousands, and
//! one affine graph each class. What is remembered here decides only which of the two is used, never whether a graph
//! is right: two classes that meet in one place, or one that is forgotten, cost a recording.

/// Classes remembered at once.
const PLACES: usize = 64;

/// What is known about a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Only this count was seen.
    One(u64),
    /// More than one count: an affine graph serves all.
    Many,
    /// More than one count, but no affine graph could be made: each count has its own.
    Apart,
}

/// A class and what is known about it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    class: u64,
    form: Form,
}

/// The classes seen last.
#[derive(Debug)]
pub struct Sizes {
    seen: [Seen; PLACES],
}

impl Default for Sizes {
    fn default() -> Self {
        Self::new()
    }
}

impl Sizes {
    /// Returns one that has seen nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { seen: [Seen { class: 0, form: Form::One(0) }; PLACES] }
    }

    /// Notes that a class came with `count`, and returns whether it uses the graph for all sizes.
    pub(crate) fn shares(&mut self, class: u64, count: u64) -> bool {
        let Some(seen) = self.place(class) else { return false };
        if seen.class != class {
            *seen = Seen { class, form: Form::One(count) };
        } else if matches!(seen.form, Form::One(first) if first != count) {
            seen.form = Form::Many;
        }
        seen.form == Form::Many
    }

    /// Notes that no graph for all sizes of a class can be made.
    pub(crate) fn set_apart(&mut self, class: u64) {
        if let Some(seen) = self.place(class) {
            *seen = Seen { class, form: Form::Apart };
        }
    }

    fn place(&mut self, class: u64) -> Option<&mut Seen> {
        self.seen.get_mut(usize::try_from(class % PLACES as u64).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_count_has_its_own_graph_and_the_second_shares() {
        let mut sizes = Sizes::new();
        assert!(!sizes.shares(4, 100));
        assert!(!sizes.shares(4, 100));
        assert!(!sizes.shares(5, 101), "another class");
        assert!(sizes.shares(4, 108));
        assert!(sizes.shares(4, 100), "the first count shares from now on");
    }

    #[test]
    fn a_class_without_an_affine_graph_stays_apart() {
        let mut sizes = Sizes::new();
        sizes.set_apart(4);
        assert!(!sizes.shares(4, 100));
        assert!(!sizes.shares(4, 108));
    }

    #[test]
    fn a_class_that_takes_the_place_of_another_starts_anew() {
        let mut sizes = Sizes::new();
        assert!(!sizes.shares(4, 100));
        assert!(!sizes.shares(4 + PLACES as u64, 100));
        assert!(!sizes.shares(4, 108));
    }
}
