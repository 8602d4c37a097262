//! A table: a row for each record, a column for each main key. What is not there is empty.

use std::io;

use ingero_common::record::{Host, HostBy, Parsed, Record, Who, parse, src};
use ingero_common::text::{Printable, table_cell};

use crate::format::Writer;
use crate::sink::Sink;

const COLUMNS: [&str; 42] = [
    "src",
    "op",
    "mono_ns",
    "ts",
    "dur_ns",
    "pid",
    "tid",
    "comm",
    "depth",
    "ret",
    "bytes",
    "dir",
    "stream",
    "func",
    "count",
    "state",
    "runq_ns",
    "cpu",
    "by_pid",
    "by_comm",
    "prev_pid",
    "prev_comm",
    "waker_pid",
    "waker_comm",
    "child_pid",
    "child_tid",
    "why",
    "open",
    "stuck",
    "late",
    "host_off_ns",
    "host_preempted_ns",
    "host_runq_ns",
    "host_sleep_ns",
    "host_io_ns",
    "host_unknown_ns",
    "host_switches",
    "host_pages",
    "host_page_bytes",
    "host_watched",
    "host_by",
    "other",
];

pub(super) struct Csv<S: Sink> {
    out: S,
    row: csv::ByteRecord,
    encoder: csv::Writer<Vec<u8>>,
    begun: bool,
}

impl<S: Sink> Csv<S> {
    pub(super) fn new(out: S) -> Self {
        Self { out, row: csv::ByteRecord::new(), encoder: csv::Writer::from_writer(Vec::new()), begun: false }
    }

    fn field(&mut self, value: Option<impl ToString>) {
        self.row.push_field(value.map(|v| v.to_string()).unwrap_or_default().as_bytes());
    }

    fn text(&mut self, text: Option<&str>) {
        self.field(text.map(table_cell));
    }

    fn who(&mut self, who: Option<&Who<'_>>) {
        self.field(who.map(|w| w.pid));
        self.text(who.map(|w| &*w.comm));
    }

    fn known(&mut self, r: &Record<'_>) {
        let is_call = src::is_call(&r.src);
        self.text(Some(&r.src));
        self.text(Some(&r.op));
        self.field(r.mono_ns);
        self.text(r.ts.as_deref());
        self.field(r.dur_ns);
        self.field(r.pid);
        self.field(r.tid);
        self.text(Some(&r.comm));
        // Of a call whose return is not probed, the depth is not known.
        self.field((is_call && r.dur_ns.is_some()).then_some(r.depth));
        self.field(r.ret);
        self.field(r.bytes);
        self.text(r.dir.as_deref());
        self.text(r.stream.as_deref());
        self.text(r.func.as_deref());
        self.field(r.count);
        self.text(r.state.as_deref());
        self.field(r.runq_ns);
        self.field(r.cpu);
        self.who(r.by.as_ref());
        self.who(r.prev.as_ref());
        self.who(r.waker.as_ref());
        self.field(r.child_pid);
        self.field(r.child_tid);
        self.text(r.why.as_deref());
        self.field(r.open.then_some(true));
        self.field(r.stuck.then_some(true));
        self.field(r.late.then_some(true));
        let host = r.host.filter(|_| is_call).and_then(|raw| serde_json::from_str::<Host<'_>>(raw.get()).ok());
        self.host(host.as_ref());
    }

    fn host(&mut self, host: Option<&Host<'_>>) {
        let numbers = host.map(|h| {
            [h.off_ns, h.preempted_ns, h.runq_ns, h.sleep_ns, h.io_ns, h.unknown_ns, h.switches, h.pages, h.page_bytes]
        });
        for at in 0..9 {
            self.field(numbers.map(|numbers| numbers[at]));
        }
        self.field(host.map(|h| h.watched));
        let by = |by: &HostBy<'_>| format!("{} ({}) {}", by.pid, &*by.comm, by.ns);
        let by: Vec<String> = host.into_iter().flat_map(|h| &h.by).map(by).collect();
        self.text(Some(&by.join("; ")));
    }

    fn write_row(&mut self) -> io::Result<()> {
        self.encoder.write_byte_record(&self.row).map_err(io::Error::other)?;
        self.encoder.flush()?;
        self.out.write_all(self.encoder.get_ref())?;
        // The encoder's own sink is only a buffer; it starts anew with each row.
        self.encoder = csv::Writer::from_writer(Vec::with_capacity(512));
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        self.row = COLUMNS.iter().collect::<Vec<_>>().into();
        self.write_row()
    }
}

impl<S: Sink> Writer for Csv<S> {
    fn record(&mut self, line: &[u8]) -> io::Result<()> {
        self.begin()?;
        self.row.clear();
        match parse(line) {
            // Whoever adds up a column wants each thing once.
            Parsed::Record(record) if record.double => return Ok(()),
            Parsed::Record(record) => {
                self.known(&record);
                self.row.push_field(b"");
            }
            Parsed::Unknown | Parsed::Bad(_) => {
                for _ in 1..COLUMNS.len() {
                    self.row.push_field(b"");
                }
                self.row.push_field(Printable(line).to_string().as_bytes());
            }
        }
        self.write_row()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.begin()
    }

    fn sink(&mut self) -> &mut dyn Sink {
        &mut self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_every_column_and_hostile_names_stay_in_theirs() {
        let mut out = Vec::new();
        let mut csv = Csv::new(&mut out);
        let host = r#"{"off_ns":5,"by":[{"pid":9,"comm":"a;b","ns":5}],"watched":true}"#;
        csv.record(
            format!(r#"{{"src":"cudart","op":"x","mono_ns":9007199254740993,"comm":"a\",\n\u001b[2J","host":{host}}}"#)
                .as_bytes(),
        )
        .unwrap();
        csv.record(br#"{"src":"x","pid":"seven"}"#).unwrap();
        csv.finish().unwrap();
        drop(csv);
        let mut reader = csv::Reader::from_reader(out.as_slice());
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        let column = |name: &str| COLUMNS.iter().position(|c| *c == name).unwrap();
        assert_eq!(&rows[0][column("mono_ns")], "9007199254740993");
        assert_eq!(&rows[0][column("comm")], "a\",\\u{a}\\u{1b}[2J");
        assert_eq!(&rows[0][column("host_by")], "9 (a;b) 5");
        assert_eq!((&rows[0][column("host_off_ns")], &rows[0][column("host_watched")]), ("5", "true"));
        assert_eq!(&rows[1][column("other")], r#"{"src":"x","pid":"seven"}"#);
        assert_eq!(rows.len(), 2);
    }
}
