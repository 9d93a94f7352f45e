//! Data files: a batch of messages as Parquet, and back. What we write is cheap, and `data` uncompressed: a run is to
//! measure the store, not how well timestamps compress. What we read may come from any writer.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, Int32Array, Int64Array, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_schema::DataType;
use arrow_select::filter::filter;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding, Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use serde::Serialize;

use super::batch::Batch;
use super::table::{DATA, DIFF, PRODUCER, SEQ};

mod guard;

/// How the column `data` is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum DataEncoding {
    /// Every byte of every message
    #[default]
    Plain,
    /// Each message as what differs from the one before (DELTA_BYTE_ARRAY)
    Prefix,
}

/// The key in a footer's metadata whose value is how many bytes the messages have, where their encoding doesn't tell.
const DATA_BYTES: &str = "s3mq.dataBytes";

/// At which a page is full, by default.
const PAGE_BYTES: usize = 1 << 20;
/// The default; for large messages a page is more than [`PAGE_BYTES`] then.
const MIN_WRITE_ROWS: usize = 1024;

/// Encodes a batch. A failure would be a bug of ours or of the Parquet crate; it is said in words.
pub(super) fn encode(
    batch: Batch,
    producer: i32,
    first_seq: u64,
    encoding: DataEncoding,
) -> Result<Bytes, String> {
    let rows = batch.len();
    let payload_bytes = batch.bytes();
    let data = BinaryArray::new(
        OffsetBuffer::new(ScalarBuffer::from(batch.offsets)),
        Buffer::from_vec(batch.values),
        None,
    );
    let first_seq = first_seq as i64;
    let columns: [(&str, ArrayRef); 3] = [
        (DATA, Arc::new(data)),
        (PRODUCER, Arc::new(Int32Array::from_value(producer, rows))),
        (SEQ, Arc::new(Int64Array::from_iter_values(first_seq..first_seq + rows as i64))),
    ];
    let size = || vec![KeyValue::new(DATA_BYTES.to_owned(), payload_bytes.to_string())];
    let properties = WriterProperties::builder()
        .set_key_value_metadata((encoding == DataEncoding::Prefix).then(size))
        .set_created_by(concat!("s3mq ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(usize::MAX)
        .set_max_row_group_row_count(None)
        // The writer allocates once for so many rows, and then looks whether the page is full: about a page's worth.
        .set_write_batch_size((rows * PAGE_BYTES / payload_bytes.max(1)).max(MIN_WRITE_ROWS))
        .set_column_encoding(
            ColumnPath::from(DATA),
            match encoding {
                DataEncoding::Plain => Encoding::PLAIN,
                DataEncoding::Prefix => Encoding::DELTA_BYTE_ARRAY,
            },
        )
        .set_column_encoding(ColumnPath::from(PRODUCER), Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding(ColumnPath::from(SEQ), Encoding::DELTA_BINARY_PACKED)
        .build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    // Length prefixes and the other two columns come to less than six bytes a row.
    let file = Vec::with_capacity(payload_bytes + 6 * rows + 4096);
    let write = || {
        // What is never null is declared so.
        let rows = RecordBatch::try_from_iter(columns)?;
        let mut writer = ArrowWriter::try_new_with_options(file, rows.schema(), options)?;
        writer.write(&rows)?;
        writer.into_inner()
    };
    write().map(Bytes::from).map_err(|error| error.to_string())
}

#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub chunks: Vec<Chunk>,
    /// Rows with `diff < 0`, left out of the chunks.
    pub retractions: u64,
    /// Rows whose `data` is null, left out of the chunks.
    pub nulls: u64,
}

/// Some rows: the messages, and their sequence numbers where the file has them.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub data: BinaryArray,
    pub seq: Option<Int64Array>,
}

/// Rows decoded at a time; a column of 17-byte messages of this many is about two megabytes.
const CHUNK_ROWS: usize = 128 * 1024;

/// What one file may decode to at most: a few kilobytes of dictionary and run lengths can be billions of rows.
const MAX_DECODED_BYTES: usize = 2 << 30;

/// A data file of any writer whose footer was read.
pub(super) struct Opened {
    file: Bytes,
    footer: ArrowReaderMetadata,
    /// The columns that are read.
    columns: ProjectionMask,
    rows: u64,
}

/// Reads the footer of a data file of as many rows as the log says, where it says so; or says what is wrong with it. Never
/// panics.
pub(super) fn open(file: Bytes, rows: Option<u64>) -> Result<Opened, String> {
    unless_panicking(|| Opened::read(file, rows))
}

/// The Parquet crate checks most of what a broken file makes it do, and where it doesn't, one file is lost.
fn unless_panicking<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        Err(format!("the Parquet reader gave up on it: {}", said.lines().next().unwrap_or("no reason given")))
    })
}

impl Opened {
    fn read(file: Bytes, rows: Option<u64>) -> Result<Self, String> {
        guard::check_footer(&file)?;
        // Without the embedded Arrow schema a byte array is binary or a string, never one of Arrow's dictionaries or views.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let footer = ArrowReaderMetadata::load(&file, options).map_err(|error| error.to_string())?;
        // Before any of them is decoded, and again of those that were.
        let of_the_file = footer.metadata().file_metadata().num_rows().max(0) as u64;
        let rows = rows.unwrap_or(of_the_file);
        expect_rows(of_the_file, rows)?;
        let fields = footer.schema().fields().iter().enumerate();
        let wanted = fields.filter(|(_, field)| [DATA, SEQ, DIFF].contains(&field.name().as_str()));
        let columns = ProjectionMask::roots(footer.parquet_schema(), wanted.map(|(index, _)| index));
        Ok(Self { file, footer, columns, rows })
    }

    /// How many bytes its rows decode to; `None` where its footer doesn't say. Byte arrays count by their own sizes
    /// (`SizeStatistics`), by those of their pages where neither dictionary nor deltas shorten them, or by what `encode`
    /// wrote.
    pub(super) fn decoded_bytes(&self) -> Option<u64> {
        let metadata = self.footer.metadata();
        let said_bytes = || {
            let pairs = metadata.file_metadata().key_value_metadata()?;
            pairs.iter().find(|pair| pair.key == DATA_BYTES)?.value.as_ref()?.parse::<i64>().ok()
        };
        let groups = metadata.row_groups().iter();
        let chunks = groups.flat_map(|group| group.columns().iter().enumerate());
        let wanted = chunks.filter(|(column, _)| self.columns.leaf_included(*column)).map(|(_, chunk)| chunk);
        let bytes =
            wanted.map(|chunk| match (chunk.unencoded_byte_array_data_bytes(), chunk.column_type()) {
                // An offset a value.
                (Some(bytes), _) => Some(bytes.saturating_add(chunk.num_values().saturating_mul(4))),
                (None, Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY) => {
                    let is_plain = |encoding| matches!(encoding, Encoding::PLAIN | Encoding::RLE);
                    let written = || Some(said_bytes()?.saturating_add(chunk.num_values().saturating_mul(4)));
                    chunk.encodings().all(is_plain).then(|| chunk.uncompressed_size()).or_else(written)
                }
                (None, _) => Some(chunk.num_values().saturating_mul(8)),
            });
        bytes
            .map(|bytes| Some(u64::try_from(bytes?).unwrap_or(0)))
            .try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
    }

    /// Decodes it, or says what is wrong with it. Never panics.
    pub(super) fn decode(self) -> Result<Decoded, String> {
        unless_panicking(|| self.decode_at_most(MAX_DECODED_BYTES))
    }

    fn decode_at_most(self, max_bytes: usize) -> Result<Decoded, String> {
        let Self { file, footer, columns, rows: said } = self;
        if footer.schema().field_with_name(DATA).is_err() {
            // A column that was added later is null in the files before (Delta protocol, "Schema Serialization Format").
            return Ok(Decoded { nulls: said, ..Decoded::default() });
        }
        guard::check_pages(&file, footer.metadata(), |column| columns.leaf_included(column))?;
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, footer)
            .with_projection(columns)
            .with_batch_size(CHUNK_ROWS)
            .build()
            .map_err(|error| error.to_string())?;
        let mut decoded = Decoded::default();
        let (mut rows_decoded, mut bytes) = (0, 0);
        for rows in reader {
            let rows = rows.map_err(|error| error.to_string())?;
            rows_decoded += rows.num_rows() as u64;
            bytes += rows.get_array_memory_size();
            if bytes > max_bytes {
                return Err(format!("it decodes to more than {} MiB", max_bytes >> 20));
            }
            decoded.take(&rows)?;
        }
        expect_rows(rows_decoded, said)?;
        Ok(decoded)
    }
}

fn expect_rows(found: u64, said: u64) -> Result<(), String> {
    if found == said { Ok(()) } else { Err(format!("it has {found} rows instead of {said}")) }
}

impl Decoded {
    fn take(&mut self, rows: &RecordBatch) -> Result<(), String> {
        let data = rows.column_by_name(DATA).ok_or("it has no column `data`")?;
        let mut chunk = Chunk {
            data: as_binary(data)?,
            // Another writer's `seq` of another type is a column of its own, not ours.
            seq: rows.column_by_name(SEQ).and_then(|seq| seq.as_primitive_opt::<Int64Type>().cloned()),
        };
        if let Some(diff) = rows.column_by_name(DIFF) {
            let additions = is_addition(diff)?;
            self.retractions += additions.false_count() as u64;
            chunk = chunk.keep(&additions)?;
        }
        if chunk.data.null_count() > 0 {
            self.nulls += chunk.data.null_count() as u64;
            let present = BooleanArray::from_iter(chunk.data.iter().map(|value| Some(value.is_some())));
            chunk = chunk.keep(&present)?;
        }
        if !chunk.data.is_empty() {
            self.chunks.push(chunk);
        }
        Ok(())
    }
}

impl Chunk {
    fn keep(self, rows: &BooleanArray) -> Result<Self, String> {
        if rows.false_count() == 0 {
            return Ok(self);
        }
        let keep = |column: &dyn Array| filter(column, rows).map_err(|error| error.to_string());
        let data = keep(&self.data)?.as_binary().clone();
        let seq = self.seq.map(|seq| keep(&seq)).transpose()?;
        Ok(Self { data, seq: seq.map(|seq| seq.as_primitive().clone()) })
    }
}

fn as_binary(data: &ArrayRef) -> Result<BinaryArray, String> {
    match data.data_type() {
        DataType::Binary | DataType::Utf8 | DataType::FixedSizeBinary(_) => {
            let data = cast(data, &DataType::Binary).map_err(|error| error.to_string())?;
            Ok(data.as_binary().clone())
        }
        other => Err(format!("its column `data` is {other}, not binary or string")),
    }
}

fn is_addition(diff: &ArrayRef) -> Result<BooleanArray, String> {
    match diff.data_type() {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let diff = cast(diff, &DataType::Int64).map_err(|error| error.to_string())?;
            let diff = diff.as_primitive::<Int64Type>().iter();
            Ok(diff.map(|value| Some(value.is_none_or(|value| value >= 0))).collect())
        }
        other => Err(format!("its column `diff` is {other}, not a whole number")),
    }
}

#[cfg(test)]
mod tests;
