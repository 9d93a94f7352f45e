use super::*;

fn decode(file: Bytes, rows: Option<u64>) -> Result<Decoded, String> {
    open(file, rows)?.decode()
}

use proptest::prelude::*;

fn messages(decoded: &Decoded) -> Vec<Vec<u8>> {
    decoded.chunks.iter().flat_map(|chunk| chunk.data.iter().flatten().map(<[u8]>::to_vec)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_encoded_decodes_to_the_same(
        sent in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..300),
        first_seq in 0u64..1 << 40,
        prefix in any::<bool>(),
    ) {
        let encoding = if prefix { DataEncoding::Prefix } else { DataEncoding::Plain };
        let file = encode(sent.iter().collect(), 9, first_seq, encoding).unwrap();
        let decoded = decode(file, None).unwrap();
        prop_assert_eq!(messages(&decoded), sent.clone());
        let seqs: Vec<i64> = decoded.chunks.iter().flat_map(|chunk| chunk.seq.as_ref().unwrap().values().to_vec()).collect();
        prop_assert_eq!(seqs, (first_seq as i64..first_seq as i64 + sent.len() as i64).collect::<Vec<_>>());
    }

    #[test]
    fn bytes_that_are_no_parquet_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(Bytes::from(bytes), None).is_err());
    }
}

fn foreign(columns: Vec<(&str, ArrayRef)>) -> Bytes {
    let rows = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    // Three rows a group, dictionary and compression as other writers have them.
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(3))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap().into()
}

#[test]
fn strings_retractions_and_nulls_of_other_writers_are_understood() {
    let data: ArrayRef = Arc::new(arrow_array::StringArray::from(vec![
        Some("a"),
        Some("b"),
        None,
        Some("d"),
        Some("e"),
        Some("f"),
        Some("g"),
    ]));
    let diff: ArrayRef = Arc::new(Int64Array::from(vec![1, -1, 1, 1, 1, -1, 1]));
    let time: ArrayRef = Arc::new(Int64Array::from(vec![7; 7]));
    let decoded = decode(foreign(vec![("time", time), ("data", data), ("diff", diff)]), None).unwrap();
    assert_eq!(messages(&decoded), [b"a", b"d", b"e", b"g"]);
    assert_eq!((decoded.retractions, decoded.nulls), (2, 1));
    assert!(decoded.chunks.iter().all(|chunk| chunk.seq.is_none()));
}

/// Files of ours and of others, in all their encodings.
fn real_files() -> Vec<Bytes> {
    let texts = || (0..300).map(|n| format!("message {} of some length", n % 40));
    let mut files: Vec<_> = [DataEncoding::Plain, DataEncoding::Prefix]
        .map(|encoding| encode(texts().collect(), 9, 5, encoding).unwrap())
        .into();
    let data: ArrayRef = Arc::new(arrow_array::StringArray::from_iter_values(texts()));
    let diff: ArrayRef = Arc::new(Int64Array::from_iter_values(0..300));
    for (compression, dictionary, rows_a_group) in [
        (Compression::SNAPPY, true, 300),
        (Compression::ZSTD(Default::default()), false, 50),
        (Compression::LZ4_RAW, true, 3),
        (Compression::UNCOMPRESSED, true, 100),
    ] {
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_dictionary_enabled(dictionary)
            .set_max_row_group_row_count(Some(rows_a_group))
            .build();
        let columns = [("data", data.clone(), true), ("diff", diff.clone(), true)];
        let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
        writer.write(&rows).unwrap();
        files.push(writer.into_inner().unwrap().into());
    }
    files
}

proptest! {
    /// Whatever is wrong with a file: it is refused, or what comes is as much as the log promised.
    #[test]
    fn broken_files_are_refused_or_whole(
        which in 0usize..6,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..5),
        in_the_footer in any::<bool>(),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let mut bytes = real_files()[which].to_vec();
        let from = if in_the_footer { bytes.len() - bytes.len().min(400) } else { 0 };
        for (index, byte) in changes {
            let at = from + index.index(bytes.len() - from);
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(decoded) = decode(bytes.into(), Some(300)) {
            let rows = messages(&decoded).len() as u64 + decoded.nulls + decoded.retractions;
            prop_assert_eq!(rows, 300);
        }
    }
}

#[test]
fn a_panic_of_the_parquet_reader_is_one_file_that_is_refused() {
    let file =
        encode((0..300).map(|n| format!("message {n}")).collect(), 9, 5, DataEncoding::Prefix).unwrap();
    let mut panics = 0;
    for at in file.len() - 300..file.len() {
        for byte in (0..=255).step_by(15) {
            let mut broken = file.to_vec();
            broken[at] = byte;
            let refused = decode(broken.into(), Some(300)).err();
            panics += usize::from(refused.is_some_and(|reason| reason.contains("gave up on it")));
        }
    }
    // Where the reader has learned to say what is wrong, the guard is not needed any more.
    assert!(panics > 0);
}

#[test]
fn a_small_file_of_endless_rows_is_refused() {
    // One message and how often it comes: a few kilobytes.
    let data: ArrayRef =
        Arc::new(arrow_array::StringArray::from_iter_values((0..500_000).map(|_| "message")));
    let rows = RecordBatch::try_from_iter([("data", data)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    let file = Bytes::from(writer.into_inner().unwrap());
    assert!(file.len() < 10_000, "{}", file.len());
    assert_eq!(messages(&decode(file.clone(), None).unwrap()).len(), 500_000);
    let error = open(file, None).unwrap().decode_at_most(2 << 20).unwrap_err();
    assert!(error.contains("more than 2 MiB"), "{error}");
}

#[test]
fn a_column_that_was_added_later_is_null() {
    let other: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let decoded = decode(foreign(vec![("other", other)]), None).unwrap();
    assert_eq!((decoded.chunks.len(), decoded.nulls), (0, 2));
}

#[test]
fn what_rows_decode_to_is_known_from_the_footer() {
    let texts: ArrayRef = Arc::new(arrow_array::StringArray::from_iter_values((0..1_000).map(|_| "message")));
    // A dictionary of one value, and run lengths.
    let file = foreign(vec![("data", texts)]);
    let opened = open(file.clone(), None).unwrap();
    assert_eq!(opened.decoded_bytes(), Some(1_000 * (7 + 4)));
    let encoded = encode(["a message"; 100].into_iter().collect(), 0, 0, DataEncoding::Prefix).unwrap();
    // `data` with an offset a value, and `seq`.
    assert_eq!(open(encoded, None).unwrap().decoded_bytes(), Some(100 * (9 + 4) + 100 * 8));
}

/// Without the check, the stack overflows.
#[test]
fn a_schema_without_end_is_refused() {
    // Groups of one child each: a repetition, a name, and how many children.
    let groups = [0x35, 2, 0x18, 1, b'x', 0x15, 2, 0].repeat(300_000);
    // The version, the list of the schema's elements with its length, no rows, no row groups.
    let footer =
        [&[0x15, 2, 0x19, 0xfc, 0xe0, 0xa7, 0x12], groups.as_slice(), &[0x16, 0, 0x19, 0x0c, 0]].concat();
    let file = [b"PAR1", footer.as_slice(), &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat();
    assert_eq!(decode(file.into(), None).unwrap_err(), "the schema in its footer is broken");
}
