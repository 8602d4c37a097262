//! How the tables are written: groups of functions that have everything but their names in common.

use super::{Class, Device, Dir, Drain, Function};
use crate::discover::LibraryKind;

impl Function {
    /// What a group has in common; traced.
    pub(super) const fn group(layer: LibraryKind, class: Class) -> Self {
        Self {
            name: "",
            layer,
            class,
            drain: Drain::No,
            dir: None,
            device: Device::Current,
            traced: true,
            stream_ordered: false,
            may_synchronize: false,
        }
    }

    /// Only other tools record it.
    pub(super) const fn untraced(self) -> Self {
        Self { traced: false, ..self }
    }

    pub(super) const fn drain(self, drain: Drain) -> Self {
        Self { drain, ..self }
    }

    pub(super) const fn dir(self, dir: Dir) -> Self {
        Self { dir: Some(dir), ..self }
    }

    pub(super) const fn device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    pub(super) const fn stream_ordered(self) -> Self {
        Self { stream_ordered: true, ..self }
    }

    pub(super) const fn may_synchronize(self) -> Self {
        Self { may_synchronize: true, ..self }
    }

    /// The functions of the group.
    pub(super) const fn named<const N: usize>(self, names: [&'static str; N]) -> [Self; N] {
        let mut functions = [self; N];
        let mut at = 0;
        while at < N {
            functions[at].name = names[at];
            at += 1;
        }
        functions
    }
}

/// Whether two names are equal: `==` is no constant function.
pub(super) const fn same(a: &str, b: &str) -> bool {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    while let ([a_first, a_rest @ ..], [b_first, b_rest @ ..]) = (a, b) {
        if *a_first != *b_first {
            return false;
        }
        (a, b) = (a_rest, b_rest);
    }
    true
}
