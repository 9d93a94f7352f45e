//! Checks of a data file for what ends the process or keeps it busy for hours in the Parquet crate (seen with 59.3.2, the
//! newest that deltalake takes), which `catch_unwind` can't help against. They are for damaged files and such as a fuzzer
//! finds, and trust the types that a file gives its fields.

use std::slice;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

/// Structures within each other. The format has less than ten, and a schema not many more.
const MAX_DEPTH: usize = 64;
/// Values in one page; writers have some ten thousand.
const MAX_PAGE_VALUES: u32 = 1 << 27;

/// The numbers of a field and of the field around it.
type Path = [u64; 2];
/// Sees each structure as it begins, and each integer.
type See<'s> = dyn FnMut(Path, Option<i64>) + 's;

/// Checks a file's footer. A file that has none is left to the Parquet crate, which says so.
pub(super) fn check_footer(file: &[u8]) -> Result<(), String> {
    let Some((before, [a, b, c, d, b'P', b'A', b'R', b'1'])) = file.split_last_chunk::<8>() else {
        return Ok(());
    };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let Some(start) = before.len().checked_sub(length) else { return Ok(()) };
    // Of each element of the schema, how many children it has.
    let mut children = Vec::new();
    let mut see = |path: Path, value: Option<i64>| match (path, value, children.last_mut()) {
        ([0, 2], None, _) => children.push(0),
        ([2, 5], Some(count), Some(last)) => *last = count,
        _ => {}
    };
    pass(&mut &before[start..], STRUCT, [0; 2], 0, &mut see).ok_or("its footer is broken")?;
    let mut elements = children.iter();
    while elements.len() > 0 {
        is_tree(&mut elements, 0).then_some(()).ok_or("the schema in its footer is broken")?;
    }
    Ok(())
}

/// Whether the next element of a schema has no more children than there are elements, in no more than so many levels.
///
/// `parquet_schema_from_array` makes room for all children that are announced (2^31 of them are 16 GiB, for which a
/// smaller machine aborts) and calls itself for each (300,000 groups within each other overflow the stack).
fn is_tree(elements: &mut slice::Iter<'_, i64>, depth: usize) -> bool {
    let Some(&children) = elements.next() else { return false };
    depth < MAX_DEPTH
        && (0..=elements.len() as i64).contains(&children)
        && (0..children).all(|_| is_tree(elements, depth + 1))
}

/// Checks the pages of the columns that are to be decoded.
pub(super) fn check_pages(
    file: &Bytes,
    metadata: &ParquetMetaData,
    is_wanted: impl Fn(usize) -> bool,
) -> Result<(), String> {
    for group in metadata.row_groups() {
        for (_, column) in group.columns().iter().enumerate().filter(|(index, _)| is_wanted(*index)) {
            let (start, length) = column.byte_range();
            let end = start.saturating_add(length).min(file.len() as u64);
            let pages = &file[start.min(end) as usize..end as usize];
            if check_headers(pages).ok_or("the header of a page is broken")? {
                check_counts(file, column)?;
            }
        }
    }
    Ok(())
}

/// Passes the pages of a column by their headers, and returns whether any of them has values that begin with a count.
///
/// For a dictionary, the crate makes room for as many values as its header announces: 2^31 of them are 8 GiB.
fn check_headers(mut pages: &[u8]) -> Option<bool> {
    let mut is_counted = false;
    while !pages.is_empty() {
        // Of a page: its length when decompressed and as it is, the values of a dictionary, how values are encoded.
        let (mut room, mut bytes, mut values) = (0, 0, 0);
        let mut see = |path: Path, value: Option<i64>| match (path, value) {
            ([0, 2], Some(value)) => room = value,
            ([0, 3], Some(value)) => bytes = value,
            ([7, 1], Some(value)) => values = value,
            ([5, 2] | [8, 4], Some(encoding)) => is_counted |= [6, 7].contains(&encoding),
            _ => {}
        };
        pass(&mut pages, STRUCT, [0; 2], 0, &mut see)?;
        pages = pages.get(usize::try_from(bytes).ok().filter(|_| values <= room)?..)?;
    }
    Some(is_counted)
}

/// Checks that the values of no page begin with a count of more than the page has.
///
/// In `DELTA_LENGTH_BYTE_ARRAY` and, twice, in `DELTA_BYTE_ARRAY`, the crate makes room for as many lengths as that
/// count says: one wrong byte asks for 128 GiB, and the process aborts.
fn check_counts(file: &Bytes, column: &ColumnChunkMetaData) -> Result<(), String> {
    let levels = [column.column_descr().max_rep_level(), column.column_descr().max_def_level()];
    let rows = usize::try_from(column.num_values()).unwrap_or(0);
    let said = |error: ParquetError| error.to_string();
    for page in SerializedPageReader::new(Arc::new(file.clone()), column, rows, None).map_err(said)? {
        pass_counts(&page.map_err(said)?, levels).ok_or("a page announces more than it has")?;
    }
    Ok(())
}

fn pass_counts(page: &Page, levels: [i16; 2]) -> Option<()> {
    let mut values = &page.buffer()[..];
    let runs = match page.encoding() {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
        Encoding::DELTA_BYTE_ARRAY => 2,
        _ => return Some(()),
    };
    if let Page::DataPageV2 { rep_levels_byte_len, def_levels_byte_len, .. } = page {
        values = values.get(*rep_levels_byte_len as usize + *def_levels_byte_len as usize..)?;
    } else {
        for _ in levels.iter().filter(|level| **level > 0) {
            let length = values.try_get_u32_le().ok()?;
            values = values.get(length as usize..)?;
        }
    }
    (0..runs).try_for_each(|_| pass_run(&mut values, page.num_values().min(MAX_PAGE_VALUES).into()))
}

/// Passes a run of at most `max` numbers in `DELTA_BINARY_PACKED`.
fn pass_run(run: &mut &[u8], max: u64) -> Option<()> {
    let (block, parts, count, _first) = (varint(run)?, varint(run)?, varint(run)?, varint(run)?);
    let part = block.checked_div(parts).filter(|part| *part > 0 && count <= max)?;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let _least = varint(run)?;
        let (widths, rest) = run.split_at_checked(usize::try_from(parts).ok()?)?;
        *run = rest;
        for width in widths {
            if left > 0 {
                let bytes = part.saturating_mul(u64::from(*width)).div_ceil(8);
                // What fills the last part up may be absent.
                *run = run.get(usize::try_from(bytes).ok()?..).unwrap_or_default();
                left = left.saturating_sub(part);
            }
        }
    }
    Some(())
}

const STRUCT: u8 = 12;

/// Passes a value in Thrift's compact protocol.
///
/// A list has a byte for each element at least. `decode_metadata` makes room for as many row groups as are announced:
/// 2^31 are 192 GiB, and the process aborts. And `skip_till_depth` counts through a list that it doesn't know: a few
/// thousand lists of 2^31 booleans, which take no bytes, keep it busy for hours.
fn pass(rest: &mut &[u8], kind: u8, path: Path, depth: usize, see: &mut See<'_>) -> Option<()> {
    match kind {
        // A boolean's value is in its type.
        1 | 2 => {}
        3 => *rest = rest.get(1..)?,
        4..=6 => {
            let value = varint(rest)?;
            see(path, Some((value >> 1) as i64 ^ -((value & 1) as i64)));
        }
        7 => *rest = rest.get(8..)?,
        8 => {
            let length = varint(rest)?;
            *rest = rest.get(usize::try_from(length).ok()?..)?;
        }
        9 | 10 if depth < MAX_DEPTH => {
            let header = *rest.split_off_first()?;
            let length = if header < 0xf0 { u64::from(header >> 4) } else { varint(rest)? };
            if length > rest.len() as u64 || length > 0 && header & 0x0f <= 2 {
                return None;
            }
            for _ in 0..length {
                pass(rest, header & 0x0f, path, depth + 1, see)?;
            }
        }
        STRUCT if depth < MAX_DEPTH => {
            see(path, None);
            let mut number = 0_u64;
            loop {
                let header = *rest.split_off_first()?;
                if header & 0x0f == 0 {
                    break;
                }
                number = if header < 0x10 {
                    varint(rest)? >> 1
                } else {
                    number.wrapping_add(u64::from(header >> 4))
                };
                pass(rest, header & 0x0f, [path[1], number], depth + 1, see)?;
            }
        }
        _ => return None,
    }
    Some(())
}

/// Takes a number of seven bits a byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let length = bytes.iter().take(10).position(|byte| *byte < 0x80)? + 1;
    let number = bytes.split_off(..length)?;
    Some(number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)))
}
