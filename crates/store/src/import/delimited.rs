//! Reads CSV.

use super::table::{Column, Problem, Row, Table};
use super::{BYTE_ORDER_MARK, ImportError, Imported, Place};
use csv::ByteRecord;
use std::path::Path;
use weigh_model::nearest;

/// Position of each column of [`Column::ALL`] in the file.
type Places = [Option<usize>; 7];

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Imported, ImportError> {
    let source = Source { path, bytes };
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
    let mut record = ByteRecord::new();
    if !source.next(&mut reader, &mut record)? {
        return Err(ImportError::of_file(path, "the file is empty", COLUMNS_HELP));
    }
    let (places, ignored) = source.columns(&record)?;
    let header_fields = record.len();
    let mut table = Table::default();
    let mut any = false;
    while source.next(&mut reader, &mut record)? {
        any = true;
        if record.len() != header_fields {
            return Err(source.wrong_length(&record, header_fields));
        }
        let row = source.row(&record, &places)?;
        table.add(&row).map_err(|problem| source.error(problem, &places))?;
    }
    if !any {
        return Err(ImportError::of_file(path, "the file names its columns and holds no row", ""));
    }
    table.finish(ignored).map_err(|problem| source.error(problem, &places))
}

const COLUMNS_HELP: &str = "the first line names the columns: environment,workload,metric,unit,better,value and, where trials were paired, block";

struct Source<'a> {
    path: &'a Path,
    bytes: &'a [u8],
}

impl Source<'_> {
    fn next(&self, reader: &mut csv::Reader<&[u8]>, record: &mut ByteRecord) -> Result<bool, ImportError> {
        reader
            .read_byte_record(record)
            .map_err(|error| ImportError::of_file(self.path, error.to_string(), ""))
    }

    fn columns(&self, header: &ByteRecord) -> Result<(Places, Vec<String>), ImportError> {
        let names: Vec<String> =
            header.iter().map(|name| String::from_utf8_lossy(name).trim().to_string()).collect();
        let mut places = [None; 7];
        let mut ignored = Vec::new();
        for (field, name) in names.iter().enumerate() {
            let Some(column) = Column::ALL.into_iter().find(|column| column.name() == name) else {
                ignored.push(name.clone());
                continue;
            };
            if places[column as usize].replace(field).is_some() {
                let message = format!("the column `{name}` is given twice");
                return Err(self.at(offset_of(header), field, message, None));
            }
        }
        if let [name] = names.as_slice()
            && name.contains([';', '\t'])
        {
            let (message, help) = ("the columns are not separated by commas", "separate them by commas");
            return Err(self.at(offset_of(header), 0, message.into(), Some(help.into())));
        }
        for column in Column::ALL.into_iter().filter(|column| places[*column as usize].is_none()) {
            self.may_be_missing(column, &names, &ignored, offset_of(header))?;
        }
        Ok((places, ignored))
    }

    /// Checks whether a column may be missing. It is an error if the column is needed, or if
    /// another one looks like it: a misspelt `block` would silently turn paired trials into
    /// unpaired ones.
    fn may_be_missing(
        &self,
        column: Column,
        names: &[String],
        ignored: &[String],
        offset: u64,
    ) -> Result<(), ImportError> {
        let ignored = || ignored.iter().map(String::as_str);
        let meant = nearest(column.name(), ignored())
            .or_else(|| ignored().find(|name| name.eq_ignore_ascii_case(column.name())));
        let help = match meant {
            Some(meant) => format!("rename `{meant}` if that is it, or remove it"),
            None if column.is_required() => COLUMNS_HELP.to_string(),
            None => return Ok(()),
        };
        let field = names.iter().position(|name| Some(name.as_str()) == meant).unwrap_or(0);
        Err(self.at(offset, field, format!("there is no column `{}`", column.name()), Some(help)))
    }

    fn row<'r>(&self, record: &'r ByteRecord, places: &Places) -> Result<Row<'r>, ImportError> {
        let text = |column: Column| -> Result<&'r str, ImportError> {
            let Some(field) = places[column as usize] else { return Ok("") };
            std::str::from_utf8(&record[field]).map(str::trim).map_err(|_| {
                let help = Some("save the file as UTF-8".to_string());
                self.at(offset_of(record), field, format!("the {} is not UTF-8 text", column.name()), help)
            })
        };
        let fault = |column: Column, message: String, help: &str| {
            let help = Some(help.to_string());
            self.at(offset_of(record), places[column as usize].unwrap_or(0), message, help)
        };
        let value = text(Column::Value)?;
        let value = value.parse().map_err(|_| {
            let help = "write it as in 12.5 or 1.25e9, with a decimal point and nothing between thousands";
            fault(Column::Value, format!("`{value}` is not a number"), help)
        })?;
        let block = match text(Column::Block)? {
            "" => None,
            block => Some(block.parse().map_err(|_| {
                let help = "a block is a whole number, 0 or above";
                fault(Column::Block, format!("`{block}` is not a block"), help)
            })?),
        };
        Ok(Row {
            environment: text(Column::Environment)?,
            workload: text(Column::Workload)?,
            metric: text(Column::Metric)?,
            unit: text(Column::Unit)?,
            better: text(Column::Better)?,
            value,
            block,
            offset: offset_of(record),
        })
    }

    fn wrong_length(&self, record: &ByteRecord, expected: usize) -> ImportError {
        let message = format!("this row has {} fields, the first line names {expected}", record.len());
        let help = "put text that contains a comma in double quotes".to_string();
        self.at(offset_of(record), record.len().min(expected + 1) - 1, message, Some(help))
    }

    fn error(&self, problem: Problem, places: &Places) -> ImportError {
        let field = places[problem.column as usize].unwrap_or(0);
        let message = problem.message(|earlier| self.locate(earlier, 0).line);
        self.at(problem.offset, field, message, problem.help)
    }

    fn at(&self, offset: u64, field: usize, message: String, help: Option<String>) -> ImportError {
        let place = self.locate(offset, field);
        ImportError { file: self.path.into(), place: Some(Box::new(place)), message, help }
    }

    /// Finds the place of a field by reading its row again, byte by byte. Only errors pay for it.
    fn locate(&self, offset: u64, field: usize) -> Place {
        let mut start = (offset as usize).min(self.bytes.len());
        if self.bytes[start..].starts_with(BYTE_ORDER_MARK) {
            start += 3;
        }
        // The reader counts empty lines before a row as part of it.
        while self.bytes.get(start).is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
            start += 1;
        }
        let (mut quoted, mut seen, mut from) = (false, 0, start);
        let mut end = self.bytes.len();
        for (at, byte) in self.bytes.iter().enumerate().skip(start) {
            match byte {
                b'"' => quoted = !quoted,
                b',' if !quoted && seen == field => {
                    end = at;
                    break;
                }
                b',' if !quoted => {
                    seen += 1;
                    from = at + 1;
                }
                b'\r' | b'\n' if !quoted => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        Place::of(self.bytes, from, end)
    }
}

fn offset_of(record: &ByteRecord) -> u64 {
    record.position().map_or(0, csv::Position::byte)
}
