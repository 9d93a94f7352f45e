//! The footer of a data file, looked over before the Parquet crate reads it.
//!
//! That crate makes room for as many row groups and children of a column as a footer announces, and descends as deep as
//! the schema does; with the lists of [`thrift`](super::thrift), a few wrong bytes could end the process, for neither an
//! allocation that fails nor a stack that overflows can be caught, or keep it busy for hours. Such a footer is refused.

use super::pages::STATISTICS;
use super::thrift::{self, ANY, BINARY, BOOL, DOUBLE, I8, I16, I32, I64, LIST, STRUCT, Shape};

/// Looks a file's footer over. A file that has none is left to the Parquet crate, which says so.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(file: &[u8]) -> Result<(), String> {
    let Some((before, [a, b, c, d, b'P', b'A', b'R', b'1'])) = file.split_last_chunk::<8>() else {
        return Ok(());
    };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let Some(start) = before.len().checked_sub(length) else { return Ok(()) };
    // Of each element of the schema, how many it has.
    let mut children = Vec::new();
    thrift::pass(&before[start..], &FILE, |shape, field| {
        if std::ptr::eq(shape, &SCHEMA_ELEMENT) {
            match (field, children.last_mut()) {
                (None, _) => children.push(0),
                (Some((CHILDREN, count)), Some(last)) => *last = count,
                _ => {}
            }
        }
    })
    .ok_or("its footer is broken")?;
    if is_sound(&children) { Ok(()) } else { Err("the schema in its footer is broken".to_owned()) }
}

/// Groups of columns within each other.
const MOST_SCHEMA_DEPTH: usize = 64;

/// Whether no element of a schema, in the order of the file, has more children than there are elements after it, or
/// lies too deep.
fn is_sound(children: &[i64]) -> bool {
    // Of each open group, how many children are still to come.
    let mut open: Vec<usize> = Vec::new();
    children.iter().enumerate().all(|(index, &children_of_it)| {
        while open.pop_if(|left| *left == 0).is_some() {}
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        let after = children.len() - index - 1;
        let Some(count) = usize::try_from(children_of_it).ok().filter(|count| *count <= after) else {
            return false;
        };
        open.push(count);
        open.len() <= MOST_SCHEMA_DEPTH
    })
}

static FILE: Shape = Shape(&[
    (1, I32, &ANY),
    (2, LIST, &SCHEMA_ELEMENT),
    (3, I64, &ANY),
    (4, LIST, &ROW_GROUP),
    (5, LIST, &KEY_VALUE),
    (6, BINARY, &ANY),
    (7, LIST, &COLUMN_ORDER),
    (8, STRUCT, &ANY),
    (9, BINARY, &ANY),
]);

static SCHEMA_ELEMENT: Shape = Shape(&[
    (1, I32, &ANY),
    (2, I32, &ANY),
    (3, I32, &ANY),
    (4, BINARY, &ANY),
    (CHILDREN, I32, &ANY),
    (6, I32, &ANY),
    (7, I32, &ANY),
    (8, I32, &ANY),
    (9, I32, &ANY),
    (10, STRUCT, &LOGICAL_TYPE),
]);

/// How many children a schema element has.
const CHILDREN: i16 = 5;

static LOGICAL_TYPE: Shape = Shape(&[
    (1, STRUCT, &ANY),
    (2, STRUCT, &ANY),
    (3, STRUCT, &ANY),
    (4, STRUCT, &ANY),
    (5, STRUCT, &Shape(&[(1, I32, &ANY), (2, I32, &ANY)])),
    (6, STRUCT, &ANY),
    (7, STRUCT, &TIME),
    (8, STRUCT, &TIME),
    (10, STRUCT, &Shape(&[(1, I8, &ANY), (2, BOOL, &ANY)])),
    (11, STRUCT, &ANY),
    (12, STRUCT, &ANY),
    (13, STRUCT, &ANY),
    (14, STRUCT, &ANY),
    (15, STRUCT, &ANY),
    (16, STRUCT, &Shape(&[(1, I8, &ANY)])),
    (17, STRUCT, &Shape(&[(1, BINARY, &ANY)])),
    (18, STRUCT, &Shape(&[(1, BINARY, &ANY), (2, I32, &ANY)])),
]);

static TIME: Shape = Shape(&[(1, BOOL, &ANY), (2, STRUCT, &UNIT)]);

static UNIT: Shape = Shape(&[(1, STRUCT, &ANY), (2, STRUCT, &ANY), (3, STRUCT, &ANY)]);

static ROW_GROUP: Shape = Shape(&[
    (1, LIST, &COLUMN_CHUNK),
    (2, I64, &ANY),
    (3, I64, &ANY),
    (4, LIST, &Shape(&[(1, I32, &ANY), (2, BOOL, &ANY), (3, BOOL, &ANY)])),
    (5, I64, &ANY),
    (6, I64, &ANY),
    (7, I16, &ANY),
]);

static COLUMN_CHUNK: Shape = Shape(&[
    (1, BINARY, &ANY),
    (2, I64, &ANY),
    (3, STRUCT, &COLUMN),
    (4, I64, &ANY),
    (5, I32, &ANY),
    (6, I64, &ANY),
    (7, I32, &ANY),
    (8, STRUCT, &ANY),
    (9, BINARY, &ANY),
]);

static COLUMN: Shape = Shape(&[
    (1, I32, &ANY),
    (2, LIST, &ANY),
    (3, LIST, &ANY),
    (4, I32, &ANY),
    (5, I64, &ANY),
    (6, I64, &ANY),
    (7, I64, &ANY),
    (8, LIST, &KEY_VALUE),
    (9, I64, &ANY),
    (10, I64, &ANY),
    (11, I64, &ANY),
    (12, STRUCT, &STATISTICS),
    (13, LIST, &Shape(&[(1, I32, &ANY), (2, I32, &ANY), (3, I32, &ANY)])),
    (14, I64, &ANY),
    (15, I32, &ANY),
    (16, STRUCT, &Shape(&[(1, I64, &ANY), (2, LIST, &ANY), (3, LIST, &ANY)])),
    (17, STRUCT, &Shape(&[(1, STRUCT, &BOX), (2, LIST, &ANY)])),
]);

static BOX: Shape = Shape(&[
    (1, DOUBLE, &ANY),
    (2, DOUBLE, &ANY),
    (3, DOUBLE, &ANY),
    (4, DOUBLE, &ANY),
    (5, DOUBLE, &ANY),
    (6, DOUBLE, &ANY),
    (7, DOUBLE, &ANY),
    (8, DOUBLE, &ANY),
]);

static KEY_VALUE: Shape = Shape(&[(1, BINARY, &ANY), (2, BINARY, &ANY)]);

static COLUMN_ORDER: Shape = Shape(&[(1, STRUCT, &ANY)]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot::decode;

    /// A file of nothing but this footer.
    fn file(footer: &[u8]) -> Vec<u8> {
        [b"PAR1", footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
    }

    /// The version, the schema's elements, no rows.
    fn footer(elements: &[Vec<u8>]) -> Vec<u8> {
        let count = elements.len() as u32;
        let count = [7, 14, 21, 28].iter().fold(vec![count as u8 | 0x80], |mut bytes, shift| {
            bytes.push((count >> shift) as u8 | 0x80);
            bytes
        });
        let mut count = count;
        count[4] &= 0x7f;
        [&[0x15, 2, 0x19, 0xfc], count.as_slice(), &elements.concat(), &[0x16, 0]].concat()
    }

    /// An optional column or group by the name of `data`.
    fn element(children: u8) -> Vec<u8> {
        let begin = if children == 0 { vec![0x15, 12, 0x25, 2] } else { vec![0x35, 2] };
        let end = if children == 0 { vec![0] } else { vec![0x15, 2 * children, 0] };
        [begin.as_slice(), &[0x18, 4], b"data", &end].concat()
    }

    const MANY: [u8; 5] = [0xff, 0xff, 0xff, 0xff, 0x07];

    fn refused(footer: &[u8]) -> String {
        let said = check(&file(footer)).unwrap_err();
        assert_eq!(decode(file(footer).into()).unwrap_err(), said);
        said
    }

    #[test]
    fn a_footer_as_it_should_be_is_read() {
        let footer = [footer(&[element(1), element(0)]), vec![0x19, 0x0c, 0]].concat();
        assert_eq!(check(&file(&footer)), Ok(()));
        assert_eq!(decode(file(&footer).into()), Ok(0));
    }

    /// Without the check, the process runs out of memory.
    #[test]
    fn more_row_groups_than_there_are_bytes_are_refused() {
        let footer = [footer(&[element(1), element(0)]), vec![0x19, 0xfc], MANY.to_vec(), vec![0]].concat();
        assert_eq!(refused(&footer), "its footer is broken");
    }

    #[test]
    fn more_children_than_there_are_elements_are_refused() {
        for children in [2, 60] {
            let footer = [footer(&[element(children), element(0)]), vec![0x19, 0x0c, 0]].concat();
            assert_eq!(refused(&footer), "the schema in its footer is broken");
        }
    }

    /// Without the check, the stack overflows.
    #[test]
    fn a_schema_without_end_is_refused() {
        let mut elements = vec![element(1); 300_000];
        elements.push(element(0));
        let footer = [footer(&elements), vec![0x19, 0x0c, 0]].concat();
        assert_eq!(refused(&footer), "the schema in its footer is broken");
    }

    /// Without the check, it takes hours.
    #[test]
    fn lists_that_take_no_bytes_are_refused() {
        let list = [[0xf1].as_slice(), &MANY].concat();
        let unknown = [vec![0xa9, 0xf9, 0xff, 0x0f], list.repeat(2047)].concat();
        let footer = [footer(&[element(1), element(0)]), vec![0x19, 0x0c], unknown, vec![0]].concat();
        assert_eq!(refused(&footer), "its footer is broken");
    }

    #[test]
    fn a_field_of_another_type_than_the_format_has_is_refused() {
        let footer = [footer(&[element(1), element(0)]), vec![0x15, 0x0c, 0]].concat();
        assert_eq!(refused(&footer), "its footer is broken");
    }

    #[test]
    fn what_is_no_parquet_is_left_alone() {
        for file in [b"".as_slice(), b"PAR1", b"\xff\xff\xff\xffPAR1", b"12345678"] {
            assert_eq!(check(file), Ok(()));
        }
    }
}
