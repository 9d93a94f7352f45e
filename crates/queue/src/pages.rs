//! The pages of a data file, each looked over before the Parquet crate decodes it.
//!
//! In three encodings and in dictionaries that crate makes room for as many values as a page announces, before it looks
//! whether they are there: a few bytes of a broken page would ask for more memory than there is, which ends the
//! process. In a page that is let through, what is announced takes up bytes. Its header is passed before, for what
//! [`thrift`](super::thrift) tells.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::thrift::{self, ANY, BINARY, BOOL, I32, I64, STRUCT, Shape, varint};

/// All row groups of a file.
pub(super) struct Pages {
    pub file: Arc<Bytes>,
    pub metadata: Arc<ParquetMetaData>,
}

impl RowGroups for Pages {
    fn num_rows(&self) -> usize {
        usize::try_from(self.metadata.file_metadata().num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let (file, metadata) = (self.file.clone(), self.metadata.clone());
        Ok(Box::new(Column { file, metadata, column, row_group: 0 }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups().iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of a column, a reader a row group.
struct Column {
    file: Arc<Bytes>,
    metadata: Arc<ParquetMetaData>,
    column: usize,
    /// The next one.
    row_group: usize,
}

impl PageIterator for Column {}

impl Iterator for Column {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let row_group = self.metadata.row_groups().get(self.row_group)?;
        self.row_group += 1;
        let column = row_group.column(self.column);
        let rows = usize::try_from(row_group.num_rows()).unwrap_or(0);
        let levels = [column.column_descr().max_rep_level(), column.column_descr().max_def_level()];
        let (start, length) = column.byte_range();
        let end = start.saturating_add(length).min(self.file.len() as u64);
        let ahead = self.file.slice(start.min(end) as usize..end as usize);
        let pages = SerializedPageReader::new(self.file.clone(), column, rows, None);
        Some(pages.map(|pages| Box::new(CheckedPages { pages, ahead, levels }) as _))
    }
}

struct CheckedPages {
    pages: SerializedPageReader<Bytes>,
    /// What comes after the page that was read last.
    ahead: Bytes,
    /// The highest level of repetition, and of definition.
    levels: [i16; 2],
}

impl CheckedPages {
    /// Passes the header of the next page, and returns what comes after that page.
    fn pass(&self) -> Result<Bytes> {
        let mut ahead = self.ahead.clone();
        // The other reader leaves index pages out, so that the next page of its is the next but one here.
        while !ahead.is_empty() {
            let (mut kind, mut bytes) = (None, None);
            let rest = thrift::pass(&ahead, &HEADER, |shape, field| match field {
                Some((KIND, value)) if std::ptr::eq(shape, &HEADER) => kind = Some(value),
                Some((BYTES, value)) if std::ptr::eq(shape, &HEADER) => bytes = Some(value),
                _ => {}
            });
            let after = rest.and_then(|rest| rest.get(usize::try_from(bytes?).ok()?..));
            let Some(after) = after else {
                return Err(ParquetError::General("the header of a page is broken".to_owned()));
            };
            ahead = ahead.slice_ref(after);
            if kind != Some(INDEX_PAGE) {
                break;
            }
        }
        Ok(ahead)
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.ahead = self.pass()?;
        match self.pages.get_next_page()? {
            Some(page) if !is_sound(&page, self.levels) => {
                Err(ParquetError::General("a page announces more than it has".to_owned()))
            }
            page => Ok(page),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pass()?;
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.ahead = self.pass()?;
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pass()?;
        self.pages.at_record_boundary()
    }
}

/// The header of a page.
static HEADER: Shape = Shape(&[
    (KIND, I32, &ANY),
    (2, I32, &ANY),
    (BYTES, I32, &ANY),
    (4, I32, &ANY),
    (5, STRUCT, &DATA),
    (6, STRUCT, &ANY),
    (7, STRUCT, &Shape(&[(1, I32, &ANY), (2, I32, &ANY), (3, BOOL, &ANY)])),
    (8, STRUCT, &DATA_V2),
]);

/// What kind of page it is.
const KIND: i16 = 1;
const INDEX_PAGE: i64 = 1;
/// Its length in the file, without the header.
const BYTES: i16 = 3;

static DATA: Shape =
    Shape(&[(1, I32, &ANY), (2, I32, &ANY), (3, I32, &ANY), (4, I32, &ANY), (5, STRUCT, &STATISTICS)]);

static DATA_V2: Shape = Shape(&[
    (1, I32, &ANY),
    (2, I32, &ANY),
    (3, I32, &ANY),
    (4, I32, &ANY),
    (5, I32, &ANY),
    (6, I32, &ANY),
    (7, BOOL, &ANY),
    (8, STRUCT, &STATISTICS),
]);

/// Of a page or of a column.
pub(super) static STATISTICS: Shape = Shape(&[
    (1, BINARY, &ANY),
    (2, BINARY, &ANY),
    (3, I64, &ANY),
    (4, I64, &ANY),
    (5, BINARY, &ANY),
    (6, BINARY, &ANY),
    (7, BOOL, &ANY),
    (8, BOOL, &ANY),
]);

/// Whether everything that a page announces takes up bytes of it.
fn is_sound(page: &Page, levels: [i16; 2]) -> bool {
    match page {
        Page::DictionaryPage { buf, num_values, .. } => *num_values as usize <= buf.len(),
        Page::DataPage { buf, num_values, encoding, rep_level_encoding, def_level_encoding, .. } => {
            let mut values = &buf[..];
            !is_counted(*encoding)
                || levels
                    .into_iter()
                    .zip([rep_level_encoding, def_level_encoding])
                    .try_for_each(|(level, encoding)| skip_levels(&mut values, *num_values, level, *encoding))
                    .and_then(|()| skip_counts(values, *encoding))
                    .is_some()
        }
        Page::DataPageV2 { buf, encoding, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
            !is_counted(*encoding)
                || buf.get(levels..).and_then(|values| skip_counts(values, *encoding)).is_some()
        }
    }
}

/// Whether values of an encoding begin with how many they are.
fn is_counted(encoding: Encoding) -> bool {
    use Encoding::{DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY};
    matches!(encoding, DELTA_BINARY_PACKED | DELTA_BYTE_ARRAY | DELTA_LENGTH_BYTE_ARRAY)
}

/// Passes the levels of one kind, of a page of the first version.
fn skip_levels(values: &mut &[u8], count: u32, highest: i16, encoding: Encoding) -> Option<()> {
    if highest <= 0 {
        return Some(());
    }
    let length = match encoding {
        Encoding::RLE => values.try_get_u32_le().ok()? as usize,
        _ => (count as usize * (i16::BITS - highest.leading_zeros()) as usize).div_ceil(8),
    };
    *values = values.get(length..)?;
    Some(())
}

/// Passes the runs of numbers that the values begin with: those themselves, lengths, or lengths of the part that each
/// has in common with the one before and of the rest.
fn skip_counts(mut values: &[u8], encoding: Encoding) -> Option<()> {
    skip_deltas(&mut values)?;
    if encoding == Encoding::DELTA_BYTE_ARRAY { skip_deltas(&mut values) } else { Some(()) }
}

/// More of them in a block than any writer has; without a limit, a block of no bytes could have any number.
const MOST_BLOCK_VALUES: u64 = 1 << 16;

/// Passes one run of numbers in `DELTA_BINARY_PACKED`.
fn skip_deltas(run: &mut &[u8]) -> Option<()> {
    let (block, parts, count) = (varint(run)?, varint(run)?, varint(run)?);
    let _first = varint(run)?;
    if !(1..=MOST_BLOCK_VALUES).contains(&block) || parts == 0 || block % parts != 0 {
        return None;
    }
    let part_values = block / parts;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let _least = varint(run)?;
        let (widths, mut rest) = run.split_at_checked(parts as usize)?;
        for &width in widths {
            // What comes after the last value has a width, and no bytes; what fills the last part up may be absent.
            let here = left.min(part_values);
            let bytes = |values: u64| (u64::from(width) * values).div_ceil(8) as usize;
            if bytes(here) > rest.len() {
                return None;
            }
            if here > 0 {
                rest = rest.get(bytes(part_values)..).unwrap_or_default();
            }
            left -= here;
        }
        *run = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(mut run: &[u8]) -> Option<usize> {
        let before = run.len();
        skip_deltas(&mut run).map(|()| before - run.len())
    }

    /// A block of 128 numbers in four parts.
    fn run(count: &[u8], rest: &[u8]) -> Vec<u8> {
        [&[0x80, 1, 4], count, &[0], rest].concat()
    }

    #[test]
    fn a_run_ends_where_its_last_part_does() {
        assert_eq!(passed(&run(&[0], &[9])), Some(5));
        assert_eq!(passed(&run(&[1], &[9])), Some(5));
        // The least difference, four widths, of which two matter: 1 bit and 2 bits of 32 numbers each.
        let block = [&[0, 1, 2, 7, 200], [0; 12].as_slice()].concat();
        assert_eq!(passed(&run(&[60], &block)), Some(5 + 5 + 12));
        assert_eq!(passed(&run(&[60], &block[..16])), Some(5 + 5 + 11), "the last number ends before");
        assert_eq!(passed(&run(&[60], &block[..15])), None);
    }

    #[test]
    fn more_numbers_than_there_are_bytes_are_refused() {
        let many = [0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(passed(&run(&many, &[0; 1000])), None);
        // One part of 2^40 numbers that take no bits.
        let block = [[0x80, 0x80, 0x80, 0x80, 0x80, 0x20].as_slice(), &[1], &many, &[0, 0, 0]].concat();
        assert_eq!(passed(&block), None);
        for (block, parts) in [(0, 1), (128, 0), (128, 3)] {
            assert_eq!(passed(&[block | 0x80, (block == 128).into(), parts, 1, 0]), None);
        }
    }

    /// Without the check, the process runs out of memory.
    #[test]
    fn a_file_with_such_a_page_is_refused() {
        use crate::parquet_file::{DataEncoding, decode, encode};
        let file = encode((0..300).map(|_| "message").collect(), 0, 0, DataEncoding::Prefix);
        let mut file = file.unwrap().to_vec();
        let begin = file.windows(3).position(|bytes| bytes == [0x80, 1, 4]).unwrap();
        file[begin + 3..begin + 8].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x7f]);
        let error = decode(file.into(), None).unwrap_err();
        assert!(error.contains("a page announces more than it has"), "{error}");
    }

    #[test]
    fn levels_lie_before_the_values() {
        let deltas = run(&[1], &[]);
        let page = |before: &[u8], encoding, levels| {
            let page = Page::DataPage {
                buf: [before, &deltas].concat().into(),
                num_values: 9,
                encoding: Encoding::DELTA_BINARY_PACKED,
                def_level_encoding: encoding,
                rep_level_encoding: encoding,
                statistics: None,
            };
            is_sound(&page, levels)
        };
        assert!(page(&[], Encoding::RLE, [0, 0]));
        assert!(page(&[2, 0, 0, 0, 18, 1], Encoding::RLE, [0, 1]));
        assert!(page(&[0, 0, 0, 0, 1, 0, 0, 0, 7], Encoding::RLE, [1, 1]));
        #[allow(deprecated)]
        let packed = Encoding::BIT_PACKED;
        // Nine levels of two bits.
        assert!(page(&[0xff; 3], packed, [0, 2]));
        assert!(!page(&[0xff; 2], packed, [0, 2]));
        assert!(!page(&[200, 0, 0, 0], Encoding::RLE, [0, 1]));
    }

    #[test]
    fn a_dictionary_has_a_byte_for_each_value() {
        let page = |num_values| Page::DictionaryPage {
            buf: Bytes::from_static(b"\x01\x00\x00\x00a"),
            num_values,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        assert!(is_sound(&page(1), [0, 1]));
        assert!(!is_sound(&page(1_000_000), [0, 1]));
    }
}
