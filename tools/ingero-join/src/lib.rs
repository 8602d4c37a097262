//! ingero-join, as a library.
