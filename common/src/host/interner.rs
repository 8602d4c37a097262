//! Names of threads and operations, stored once, and threads and processes by number and name.
//!
//! A recording repeats a few names millions of times, so records refer to them by number. Names come from
//! traced processes and are hostile: each is cut to a sane length and their number is bounded.

use super::HashMap;
use crate::text::Traced;

/// A stored name. The default is the empty name: nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(u16);

impl Name {
    /// Nobody's.
    pub const NONE: Self = Self(0);
}

/// Longer than any kernel `comm` (15 bytes) and any API name.
const MAX_BYTES: usize = 96;
/// What a name becomes when there are too many different ones to store.
const OVERFLOW: &str = "(other)";
const OVERFLOW_NAME: Name = Name(1);

/// The table of names.
#[derive(Debug)]
pub struct Interner {
    ids: HashMap<Box<str>, Name>,
    texts: Vec<Traced>,
}

impl Default for Interner {
    fn default() -> Self {
        Self {
            ids: HashMap::from_iter([("".into(), Name(0)), (OVERFLOW.into(), OVERFLOW_NAME)]),
            texts: vec!["".into(), OVERFLOW.into()],
        }
    }
}

impl Interner {
    /// So many different names are told apart, and no more.
    pub const MAX: usize = 1 << u16::BITS;

    /// Whether names beyond those that are known share one.
    pub fn is_full(&self) -> bool {
        self.texts.len() >= Self::MAX
    }

    /// Whether more than half of the names that can be told apart are taken.
    pub fn is_half_full(&self) -> bool {
        self.texts.len() > Self::MAX / 2
    }

    /// The number of `text`; all names beyond the first 65,535 different ones share one.
    pub fn id(&mut self, text: &str) -> Name {
        let text = &text[..text.floor_char_boundary(MAX_BYTES)];
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let Ok(next) = u16::try_from(self.texts.len()) else { return OVERFLOW_NAME };
        self.texts.push(text.into());
        self.ids.insert(text.into(), Name(next));
        Name(next)
    }

    /// The text of a name.
    pub fn text(&self, name: Name) -> &Traced {
        // The first one is the empty name.
        self.texts.get(usize::from(name.0)).unwrap_or(&self.texts[0])
    }
}

/// A thread as records name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Process (TGID).
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Its `comm` when it was seen.
    pub name: Name,
}

impl Thread {
    /// The thread as a cause points at it: its process, and its name.
    pub fn task(self) -> Task {
        Task { pid: self.pid, name: self.name }
    }
}

/// Who a cause points at. The default is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// Process (TGID); 0 = nobody.
    pub pid: u32,
    /// Name of the thread.
    pub name: Name,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stored_once_and_their_number_is_bounded() {
        let mut names = Interner::default();
        let a = names.id("train");
        assert_eq!((names.id("train"), names.text(a).raw()), (a, "train"));
        assert_eq!(names.text(Name::default()).raw(), "");
        for i in 0..70_000 {
            names.id(&i.to_string());
        }
        let late = names.id("one too many");
        assert_eq!(names.text(late).raw(), OVERFLOW);
        assert_eq!(names.id("train"), a);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let mut names = Interner::default();
        let id = names.id(&"\u{e9}".repeat(200));
        assert_eq!(names.text(id).raw().len(), 96);
    }
}
