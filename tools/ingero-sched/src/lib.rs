//! ingero-sched, as a library.
