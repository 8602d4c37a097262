//! ingero-cuda, as a library.
