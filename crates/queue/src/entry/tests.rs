use super::*;
use proptest::prelude::*;

fn by() -> ProducerEpoch {
    ProducerEpoch { producer: 3, epoch: Uuid::new_v4() }
}

#[test]
fn what_a_commit_writes_reads_back() {
    let (commit_id, by) = (Uuid::new_v4(), by());
    let stamps = ProducerStamps {
        handed_over: vec![(0, 5), (7, 6)],
        sealed_us: 9,
        queued_us: 9,
        encoded_us: 10,
        stored_us: 12,
    };
    let file = |n: u64| StoredFile {
        path: format!("part-{n}.parquet"),
        size: 10 + n,
        origin: Origin { by, first_seq: n * 100, rows: 100 },
        stamps: stamps.clone(),
    };
    let entry = Entry::parse(&commit_of_files(commit_id, by, 7, 1, &[file(0), file(1)])).unwrap();
    assert_eq!(entry.commit_id, Some(commit_id));
    assert_eq!(entry.adds.len(), 2);
    assert_eq!(entry.adds[1].origin, Some(Origin { by, first_seq: 100, rows: 100 }));
    assert_eq!((entry.adds[1].rows, entry.adds[1].size), (Some(100), 11));
    assert_eq!((entry.adds[1].stamps.as_ref(), entry.commit_sent_us), (Some(&stamps), Some(1)));
    assert!(!entry.removes_rows && entry.end.is_none() && entry.protocol.is_none());

    let end = EndOfStream { by, count: 200, committed_us: None };
    let entry = Entry::parse(&commit_of_end(commit_id, end, 7_000)).unwrap();
    let read_back = EndOfStream { committed_us: Some(7_000), ..end };
    assert_eq!((entry.end, entry.commit_id), (Some(read_back), Some(commit_id)));
    assert!(entry.adds.is_empty());
}

#[test]
fn unknown_actions_and_fields_are_passed_over() {
    let text = br#"{"commitInfo":{"timestamp":1,"operation":"WRITE","new":{"a":[1]}}}
{"domainMetadata":{"domain":"x"}}
{"add":{"path":"a%20b%2525.parquet","partitionValues":{},"size":5,"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":2,\"minValues\":{}}","baseRowId":1}}

{"add":{"path":"compacted.parquet","partitionValues":{},"size":5,"modificationTime":1,"dataChange":false}}
{"remove":{"path":"old","deletionTimestamp":1,"dataChange":false}}
"#;
    let entry = Entry::parse(text).unwrap();
    assert_eq!(entry.adds.len(), 1);
    assert_eq!(entry.adds[0].path, "a b%25.parquet", "decoded exactly once");
    assert_eq!((entry.adds[0].rows, entry.adds[0].origin), (Some(2), None));
    assert!(!entry.removes_rows);
    let removed = br#"{"remove":{"path":"old","dataChange":true}}"#;
    assert!(Entry::parse(removed).unwrap().removes_rows);
}

#[test]
fn a_broken_line_is_named() {
    let error = Entry::parse(b"{\"commitInfo\":{}}\n{\"add\":").unwrap_err();
    assert!(error.starts_with("line 2"), "{error}");
    // What serde would take for a struct without names.
    for no_object in ["[]", "{}\n[null,null]", "7", "null"] {
        assert!(Entry::parse(no_object.as_bytes()).is_err(), "{no_object}");
    }
    assert_eq!(Entry::parse(b"\n").unwrap_err(), "it is empty");
}

#[test]
fn what_is_wrong_is_said_on_one_line_of_bounded_length() {
    let long = "9\\n".repeat(1 << 20);
    for broken in [
        format!(r#"{{"add":{{"path":"x","size":"{long}"}}}}"#),
        format!(r#"{{"add":{{"path":"%ff{long}","size":7}}}}"#),
        format!(r#"{{"protocol":{{"minReaderVersion":"{long}"}}}}"#),
    ] {
        let error = Entry::parse(broken.as_bytes()).unwrap_err();
        assert!(error.len() < 400 && !error.contains('\n') && error.starts_with("line 1"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Entry::parse(&bytes);
    }

    #[test]
    fn an_entry_with_other_bytes_in_it_parses_or_is_refused(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..5),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let stamps = ProducerStamps { handed_over: vec![(0, 5), (7, 6)], sealed_us: 9, queued_us: 9, encoded_us: 10, stored_us: 12 };
        let file = StoredFile {
            path: "part%20.parquet".to_owned(),
            size: 10,
            origin: Origin { by: by(), first_seq: 0, rows: 100 },
            stamps,
        };
        let mut bytes = commit_of_files(Uuid::new_v4(), by(), 7, 1, &[file.clone(), file]);
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = Entry::parse(&bytes);
    }
}
