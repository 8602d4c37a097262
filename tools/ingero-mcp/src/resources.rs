//! What a client can read beside the tools: the record contract, the tables, a summary of each recording.

use std::sync::Arc;

use ingero_common::cli;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents};

use crate::answer::{plain, quoted};
use crate::recording::Recording;
use crate::store;
use crate::tools::{Context, Problem, overview};

const CONTRACT: &str = "ingero://contract";
const TABLES: &str = "ingero://sql-schema";
const SUMMARY: &str = "ingero://summary/";

/// All resources.
pub(crate) fn list(recordings: &[Arc<Recording>]) -> Vec<Resource> {
    let mut resources = vec![
        Resource::new(CONTRACT, "contract")
            .with_title("The record contract")
            .with_description("What each key of a record means, and the list of causes")
            .with_mime_type("text/markdown"),
        Resource::new(TABLES, "sql-schema")
            .with_title("The tables of run_sql")
            .with_description("CREATE TABLE statements with comments")
            .with_mime_type("application/sql"),
    ];
    for recording in recordings {
        resources.push(
            Resource::new(format!("{SUMMARY}{}", recording.name), format!("summary of {}", recording.name))
                .with_title("Summary of a recording")
                .with_description("Interval, counts, accounts, findings by severity, what was checked")
                .with_mime_type("application/json"),
        );
    }
    resources
}

/// One resource; `None` where there is no such one.
pub(crate) fn read(uri: &str, context: &Context<'_>) -> Option<Result<ReadResourceResult, Problem>> {
    let (text, mime) = match uri {
        CONTRACT => (cli::SCHEMA.to_owned(), "text/markdown"),
        TABLES => (store::SCHEMA.to_owned(), "application/sql"),
        _ => {
            let name = uri.strip_prefix(SUMMARY)?;
            let recording = context.recordings.iter().find(|r| r.name == name)?;
            match context.view(recording) {
                Ok(view) => (plain(&overview(context, recording, &view, None)).to_string(), "application/json"),
                Err(problem) => return Some(Err(problem)),
            }
        }
    };
    Some(Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(mime)])))
}

/// What to say where there is none.
pub(crate) fn unknown(uri: &str, recordings: &[Arc<Recording>]) -> String {
    let known: Vec<String> = list(recordings).into_iter().map(|r| r.uri.clone()).collect();
    format!("no resource {}; there are {}", quoted(uri), known.join(", "))
}
