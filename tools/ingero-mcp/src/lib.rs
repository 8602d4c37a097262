//! ingero-mcp as a library: recordings in, a Model Context Protocol server out.
//!
//! | module      | question it answers                                                      |
//! |-------------|--------------------------------------------------------------------------|
//! | `load`      | how does a file become a [`Recording`], while it is read once?           |
//! | `row`       | what of a record becomes columns?                                        |
//! | `store`     | which tables are there, and what may somebody else's SQL do?             |
//! | `grid`      | what happened when, without keeping it? (with a worked example)          |
//! | `recording` | what is there to work on, and how far is the load?                       |
//! | `tools`     | what can a client ask?                                                   |
//! | `answer`    | how does an answer stay short, plain and complete?                       |
//! | `schema`    | what do arguments and answers look like, so that every client reads it?  |
//! | `prompt`, `resources` | how should a model go about it, and what should it know?       |
//! | `server`    | which of these does a request mean?                                      |
//! | `stdio`, `http` | how do requests arrive?                                              |

mod answer;
mod grid;
pub mod http;
pub mod load;
pub mod options;
mod prompt;
pub mod recording;
mod resources;
mod row;
mod schema;
pub mod server;
pub mod stdio;
pub mod store;
pub mod tools;

pub use options::Options;
pub use recording::Recording;
