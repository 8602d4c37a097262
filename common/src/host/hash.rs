//! Hash maps whose hasher is quick for the short keys that every record is looked up by: thread numbers and names.
//!
//! Names are those that traced programs gave themselves. The hasher is seeded anew in each map, and wherever names are
//! keys their number is bounded (see [`super::Interner`]).

/// As in the standard library, with a quicker hasher.
pub type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// As in the standard library, with a quicker hasher.
pub type HashSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
