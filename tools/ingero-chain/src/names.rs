//! Names of threads and operations, stored once.
//!
//! A recording repeats a few names millions of times, so records refer to them by number. Names come from
//! traced processes and are hostile: each is cut to a sane length and their number is bounded.

use ingero_common::cuda_api;

use crate::gpu::outstanding::Known;
use crate::map::HashMap;

/// A stored name. The default is the empty name: nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(u16);

/// Longer than any kernel `comm` (15 bytes) and any API name.
const MAX_BYTES: usize = 96;
/// What a name becomes when there are too many different ones to store.
const OVERFLOW: &str = "(other)";
const OVERFLOW_NAME: Name = Name(1);

/// The table of names.
#[derive(Debug)]
pub struct Names {
    ids: HashMap<Box<str>, Name>,
    texts: Vec<Box<str>>,
    /// What API functions do, by source and name.
    functions: HashMap<(Name, Name), Known>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            ids: HashMap::from_iter([("".into(), Name(0)), (OVERFLOW.into(), OVERFLOW_NAME)]),
            texts: vec!["".into(), OVERFLOW.into()],
            functions: HashMap::default(),
        }
    }
}

impl Names {
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

    /// What is known of API function `op` of `source`, looked up once for each; both are names that [`Self::id`] gave.
    pub(crate) fn function(&mut self, source: (Name, &str), op: (Name, &str)) -> Known {
        if op.0 == OVERFLOW_NAME {
            return cuda_api::find(source.1, op.1);
        }
        *self.functions.entry((source.0, op.0)).or_insert_with(|| cuda_api::find(source.1, op.1))
    }

    /// The text of a name.
    pub fn text(&self, name: Name) -> &str {
        self.texts.get(usize::from(name.0)).map_or("", |text| text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stored_once_and_their_number_is_bounded() {
        let mut names = Names::default();
        let a = names.id("train");
        assert_eq!((names.id("train"), names.text(a)), (a, "train"));
        assert_eq!(names.text(Name::default()), "");
        for i in 0..70_000 {
            names.id(&i.to_string());
        }
        let late = names.id("one too many");
        assert_eq!(names.text(late), OVERFLOW);
        let cudart = names.id("cudart");
        let mut class = |op| names.function((cudart, "cudart"), (late, op)).unwrap().class;
        assert_eq!((class("cudaMalloc"), class("cudaFree")), (cuda_api::Class::Alloc, cuda_api::Class::Free));
        assert_eq!(names.id("train"), a);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let mut names = Names::default();
        let id = names.id(&"\u{e9}".repeat(200));
        assert_eq!(names.text(id).len(), 96);
    }
}
