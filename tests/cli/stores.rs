//! Stores that answer in other ways than most: each is a gateway before the embedded one that changes requests'
//! answers as that store would. What carries a queue has to work there; what doesn't ends soon, and names the reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::gateway::{Gateway, answer, refusal};
use crate::harness::{Finished, S3mq, s3mq};
use crate::store::Store;

const BENCH: &str = "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 1 \
                     --autocommit-duration-ms 50 --checkpoint-interval 5 --quiet";

/// The roles, the producer first.
const ROLES: [&str; 2] = ["producer --lake-path queue --rate 1 --messages 1", "consumer --lake-path queue"];

fn at(command: S3mq, gateway: &Gateway) -> S3mq {
    command.env("MINIO_S3_ENDPOINT", &gateway.endpoint())
}

fn is_bulk_delete(head: &str) -> bool {
    head.starts_with("POST ") && head.lines().next().unwrap_or_default().contains("?delete")
}

fn has_header(head: &str, name: &str) -> bool {
    head.to_lowercase().contains(&format!("\r\n{name}:"))
}

/// An answer's head, with the line break that ends its last header, and its body.
fn parts(answer: &[u8]) -> (String, &[u8]) {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(answer.len() - 2);
    (String::from_utf8_lossy(&answer[..end + 2]).into_owned(), answer.get(end + 4..).unwrap_or_default())
}

/// The answer without its header of this name.
fn without_header(answer: &[u8], name: &str) -> Vec<u8> {
    let (head, body) = parts(answer);
    let is_other = |line: &&str| !line.to_lowercase().starts_with(&format!("{name}:"));
    let head: String = head.split_inclusive("\r\n").filter(is_other).collect();
    [head.as_bytes(), b"\r\n", body].concat()
}

/// The answer with this body in place of its own.
fn with_body(answer: &[u8], body: &str) -> Vec<u8> {
    let without = without_header(answer, "content-length");
    let (head, _) = parts(&without);
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The answer in chunks, so that nobody knows its length beforehand.
fn in_chunks(answer: &[u8]) -> Vec<u8> {
    let without = without_header(answer, "content-length");
    let (head, body) = parts(&without);
    let head = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
    [head.as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
}

fn leaves_nothing(store: &Store, finished: &Finished) {
    let left = store.keys();
    finished.check(left.is_empty(), format_args!("left: {left:?}"));
}

/// MinIO of some ages, and others, insist on `Content-MD5` for `DeleteObjects`.
#[test]
fn a_store_that_insists_on_content_md5_is_cleaned_up() {
    let store = Store::start();
    let gateway = Gateway::before(store.endpoint(), |head| {
        (is_bulk_delete(head) && !has_header(head, "content-md5"))
            .then(|| refusal("400 Bad Request", "MissingContentMD5", "Missing required header Content-Md5."))
    });
    for command in ["check --round-trips 3", BENCH] {
        let finished = at(store.s3mq(command), &gateway).run();
        finished.exits(0);
        leaves_nothing(&store, &finished);
    }
    assert!(gateway.heads().iter().any(|head| is_bulk_delete(head)), "nothing was deleted in bulk");
}

/// A store that can't delete in bulk at all is known before anything is measured.
#[test]
fn a_store_that_deletes_nothing_in_bulk_is_refused_by_the_preflight() {
    let store = Store::start();
    let gateway = Gateway::before(store.endpoint(), |head| {
        is_bulk_delete(head)
            .then(|| refusal("501 Not Implemented", "NotImplemented", "A header is not known."))
    });
    for command in ["check --round-trips 3", BENCH] {
        let finished = at(store.s3mq(command), &gateway).run();
        finished.exits(1).complains(&["DELETE", "NotImplemented"]);
        finished.check(!finished.stdout.contains("/s "), "a rate was run");
    }
}

/// `DeleteObjects` answers 200 and says for each key what became of it.
#[test]
fn a_key_that_can_not_be_deleted_just_now_is_asked_for_again() {
    for code in ["InternalError", "SlowDown"] {
        let store = Store::start();
        let failures = Arc::new(AtomicUsize::new(0));
        let counted = failures.clone();
        let gateway = Gateway::changing(store.endpoint(), move |head, answer| {
            let (_, body) = parts(&answer);
            let body = String::from_utf8_lossy(body).into_owned();
            if !is_bulk_delete(head)
                || !body.contains("<Deleted>")
                || !counted.fetch_add(1, Relaxed).is_multiple_of(2)
            {
                return answer;
            }
            let failed = format!("<Code>{code}</Code><Message>Please try again.</Message></Error>");
            let body = body.replacen("<Deleted>", "<Error>", 1).replacen("</Deleted>", &failed, 1);
            with_body(&answer, &body)
        });
        let finished = at(store.s3mq(BENCH), &gateway).run();
        finished.exits(0);
        leaves_nothing(&store, &finished);
        assert!(failures.load(Relaxed) > 1, "nothing failed");
    }
}

/// What can't be deleted by the end of a bench is said, and not called a matter of the policy.
#[test]
fn objects_that_are_left_are_said() {
    let store = Store::start();
    let gateway = Gateway::changing(store.endpoint(), move |head, answer| {
        let (_, body) = parts(&answer);
        let body = String::from_utf8_lossy(body).into_owned();
        match body.find("<Key>").filter(|_| is_bulk_delete(head) && body.contains("/100/part-")) {
            None => answer,
            Some(_) => {
                let failed = "<Code>InvalidObjectState</Code><Message>It is held.</Message></Error>";
                with_body(&answer, &body.replace("<Deleted>", "<Error>").replace("</Deleted>", failed))
            }
        }
    });
    let finished = at(store.s3mq(BENCH), &gateway).run();
    finished.exits(1);
    finished.check(finished.stderr.contains("InvalidObjectState"), "the store's code");
    finished.check(finished.stderr.contains("left"), "that something is left");
    finished.check(!finished.stderr.contains("policy"), "it isn't the policy");
}

/// S3 Express One Zone and Storj list in an order of their own.
fn before_an_unsorted_store(store: &Store) -> Gateway {
    Gateway::changing(store.endpoint(), |head, answer| {
        let (_, body) = parts(&answer);
        let text = String::from_utf8_lossy(body).into_owned();
        let (Some(first), Some(last)) = (text.find("<Contents>"), text.rfind("</Contents>")) else {
            return answer;
        };
        assert!(head.contains("list-type=2"), "{head}");
        let last = last + "</Contents>".len();
        let mut contents: Vec<_> = text[first..last].split_inclusive("</Contents>").collect();
        contents.reverse();
        with_body(&answer, &format!("{}{}{}", &text[..first], contents.concat(), &text[last..]))
    })
}

#[test]
fn a_store_that_lists_in_another_order_carries_a_queue() {
    let store = Store::start();
    let gateway = before_an_unsorted_store(&store);
    let producer = "producer --lake-path queue --rate 200 --messages 200 --autocommit-duration-ms 50 --checkpoint-interval 4";
    let produced = at(store.s3mq(producer), &gateway).run();
    produced.exits(0);
    let summary = produced.event("produced");
    produced.check(summary["checkpoints"]["made"].as_u64() > Some(1), &summary);
    produced.check(summary["checkpoints"]["failed"] == 0, &summary);
    for start in ["earliest", "0"] {
        let consumed = at(store.s3mq(&format!("consumer --lake-path queue --start {start}")), &gateway).run();
        consumed.exits(0);
        let summary = consumed.event("consumed");
        consumed.check(summary["received"] == 200 && summary["lost_files"] == 0, &summary);
    }
    let bench = at(store.s3mq(BENCH), &gateway).run();
    bench.exits(0);
    bench.check(bench.stdout.contains("sustained"), "the verdict");
    let check = at(store.s3mq("check --round-trips 1"), &gateway).run();
    check.exits(0).check(check.stdout.contains("an order of the store's own"), "the order");
}

/// A gap in the log of such a store is found without a listing of the whole log.
#[test]
fn a_gap_in_an_unsorted_stores_log_is_named() {
    let store = Store::start();
    let gateway = before_an_unsorted_store(&store);
    at(store.s3mq("preload --lake-path queue --versions 30 --quiet"), &gateway).run().exits(0);
    let gateway = Gateway::before(&gateway.endpoint(), |head| {
        head.contains("00000000000000000012.json").then(|| refusal("404 Not Found", "NoSuchKey", "Not here."))
    });
    let consumer = "consumer --lake-path queue --start 0";
    let finished = at(store.s3mq(consumer), &gateway).run();
    finished.exits(3);
    finished.check(finished.stderr.contains("version 12"), "the version");
}

/// Never follow with credentials: another host would get signed requests.
#[test]
fn a_redirect_is_not_followed_and_its_target_is_named() {
    let elsewhere = Gateway::alone(|_| answer("200 OK", "", ""));
    let store = Store::start();
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let target = format!("{}/s3mq/somewhere", elsewhere.endpoint());
        let gateway =
            Gateway::alone(move |_| answer(status, &format!("Location: {target}\r\n"), "<html>moved</html>"));
        let words = ["redirects", &elsewhere.endpoint(), "endpoint"];
        for command in ["check", BENCH] {
            at(store.s3mq(command), &gateway).run().exits(1).complains(&words);
        }
        for role in ROLES {
            let role = format!("{role} --no-preflight");
            at(store.s3mq(&role), &gateway).run().exits(1).complains(&words);
        }
    }
    assert!(elsewhere.heads().is_empty(), "followed: {:?}", elsewhere.heads());
}

/// What never changes isn't asked for a minute, and its header is named.
#[test]
fn an_answer_without_its_length_or_its_etag_is_refused_soon_and_named() {
    let store = Store::start();
    at(
        store.s3mq("preload --lake-path queue --versions 3 --quiet"),
        &Gateway::before(store.endpoint(), |_| None),
    )
    .run()
    .exits(0);
    let chunked = Gateway::changing(store.endpoint(), |head, answer| match head.starts_with("GET ") {
        true if !head.contains("list-type=2") => in_chunks(&answer),
        _ => answer,
    });
    let no_etag = Gateway::changing(store.endpoint(), |head, answer| match head.starts_with("PUT ") {
        true => without_header(&answer, "etag"),
        false => answer,
    });
    let producer = "producer --lake-path queue --rate 1 --messages 1 --append-to-existing --no-preflight";
    for (gateway, header, command) in [
        (&chunked, "content-length", "check"),
        (&chunked, "content-length", BENCH),
        (&chunked, "content-length", "consumer --lake-path queue --no-preflight"),
        (&no_etag, "etag", "check"),
        (&no_etag, "etag", BENCH),
        (&no_etag, "etag", producer),
    ] {
        let before = gateway.heads().len();
        let finished = at(store.s3mq(command), gateway).spawn().finish_within(Duration::from_secs(20));
        finished.exits(1);
        finished.check(finished.stderr.to_lowercase().contains(header), "the header's name");
        let sent = gateway.heads().len() - before;
        finished.check(sent < 30, format_args!("{sent} requests"));
    }
}

/// A download that is slow and steady reaches the deadline for all attempts; both deadlines are named.
#[test]
fn a_download_that_is_too_slow_names_both_deadlines() {
    let store = Store::start();
    let producer = "producer --lake-path queue --rate max --messages 2000 --message-size 1000";
    store.s3mq(producer).run().exits(0);
    let faults =
        "[[rule]]\nmethod = 'GET'\nkey = '*.parquet'\naction = 'slow-body'\nbytes_per_second = 20000";
    let proxy = s3mq(&format!("serve --proxy {} --faults faults.toml", store.endpoint()));
    std::fs::write(proxy.path("faults.toml"), faults).unwrap();
    let mut proxy = proxy.spawn();
    let endpoint = proxy.wait_for_line("its endpoint", |line| {
        line.strip_prefix("export MINIO_S3_ENDPOINT=").map(str::to_owned)
    });
    let consumer = "consumer --lake-path queue --request-timeout-seconds 1 --retry-timeout-seconds 3";
    let finished = store.s3mq(consumer).env("MINIO_S3_ENDPOINT", &endpoint).run();
    finished.exits(1);
    let words = ["--request-timeout-seconds", "--retry-timeout-seconds"];
    words.iter().for_each(|word| {
        finished.check(finished.stderr.contains(word), word);
    });
}

/// The lock is taken with the care of a commit: a request that breaks off, or an answer that is lost, is neither an
/// error nor another bench.
#[test]
fn a_lock_survives_resets_and_lost_answers() {
    for (is_applied, first) in [(false, 1), (true, 1)] {
        let store = Store::start();
        let puts = Arc::new(AtomicUsize::new(0));
        let is_lock_put = |head: &str| head.starts_with("PUT ") && head.contains("/.s3mq-bench.lock");
        let gateway = if is_applied {
            Gateway::changing(store.endpoint(), move |head, answer| {
                match is_lock_put(head) && puts.fetch_add(1, Relaxed) < first {
                    true => Vec::new(),
                    false => answer,
                }
            })
        } else {
            Gateway::before(store.endpoint(), move |head| {
                (is_lock_put(head) && puts.fetch_add(1, Relaxed) < first).then(String::new)
            })
        };
        for _ in 0..2 {
            at(store.s3mq(BENCH), &gateway).run().exits(0);
        }
    }
}

/// A DELETE without a condition could take the lock of whoever took it over meanwhile away.
#[test]
fn a_lock_is_given_back_on_condition() {
    let store = Store::start();
    let gateway = Gateway::before(store.endpoint(), |_| None);
    at(store.s3mq(BENCH), &gateway).run().exits(0);
    let heads = gateway.heads();
    let deletes = |head: &String| head.starts_with("DELETE ") && head.contains("/.s3mq-bench.lock");
    assert!(!heads.iter().any(deletes), "{heads:?}");
    let puts: Vec<_> =
        heads.iter().filter(|head| head.starts_with("PUT ") && head.contains("/.s3mq-bench.lock")).collect();
    assert!(puts.len() >= 2, "{puts:?}");
    assert!(
        puts[1..].iter().all(|head| has_header(head, "if-match") || has_header(head, "if-none-match")),
        "{puts:?}"
    );
}

/// Nagle's algorithm at the store: a small answer waits for the client's delayed acknowledgement, some 40 ms.
#[test]
fn a_store_that_holds_small_answers_back_is_recognised() {
    let store = Store::start();
    let nagle = Gateway::changing(store.endpoint(), |head, answer| {
        if head.starts_with("GET ") {
            std::thread::sleep(Duration::from_millis(41));
        }
        answer
    });
    let check = at(store.s3mq("check --round-trips 5"), &nagle).run();
    check.exits(0).check(check.stdout.contains("TCP_NODELAY"), "what to set");
    // One that is slow at everything isn't.
    let slow = Gateway::changing(store.endpoint(), |_, answer| {
        std::thread::sleep(Duration::from_millis(41));
        answer
    });
    let check = at(store.s3mq("check --round-trips 5"), &slow).run();
    check.exits(0).check(!check.stdout.contains("TCP_NODELAY"), "it is slow at everything");
}

/// Signatures carry a time: a clock that is off is no matter of the policy.
#[test]
fn a_clock_that_is_off_is_said_with_by_how_much() {
    let store = Store::start();
    let later_seconds = s3mq_clock::wall_us() as u64 / 1_000_000 + 3600;
    let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(later_seconds));
    let headers = format!("Date: {date}\r\nContent-Type: application/xml\r\n");
    let body = "<?xml version=\"1.0\"?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the \
                request time and the server's time is too large.</Message></Error>";
    let refused = answer("403 Forbidden", &headers, body);
    let gateway = Gateway::alone(move |_| refused.clone());
    for command in ["check", BENCH] {
        let finished = at(store.s3mq(command), &gateway).run();
        finished.exits(1).complains(&["clock", "RequestTimeTooSkewed", " s behind"]);
        finished.check(finished.stderr.len() < 300, "it is a short line");
        finished.check(!finished.stderr.contains("policy"), "it isn't the policy");
    }
    for role in ROLES {
        let finished = at(store.s3mq(&format!("{role} --no-preflight")), &gateway).run();
        finished.exits(1).complains(&["clock", "RequestTimeTooSkewed"]);
    }
}

/// A store that takes only names of the form BUCKET.HOST says so, and how to give them.
#[test]
fn a_store_that_wants_the_bucket_in_the_host_name_is_said_to() {
    let store = Store::start();
    let sentence = "Please use virtual hosted style to access.";
    let gateway = Gateway::alone(move |_| refusal("403 Forbidden", "SecondLevelDomainForbidden", sentence));
    for command in ["check", BENCH] {
        let words = ["--addressing virtual", "SecondLevelDomainForbidden", sentence];
        at(store.s3mq(command), &gateway).run().exits(1).complains(&words);
    }
}

/// Whatever a store says for its refusal is shown.
#[test]
fn the_stores_own_sentence_is_shown() {
    let store = Store::start();
    let sentence = "Access denied by bucket quota of tenant 7";
    let gateway = Gateway::alone(move |_| refusal("403 Forbidden", "AccessDenied", sentence));
    for command in ["check", BENCH] {
        at(store.s3mq(command), &gateway).run().exits(1).complains(&["access denied", sentence]);
    }
}

/// Gateways of another age, or of another mind: what they do beside the protocol is no hindrance.
#[test]
fn odd_answers_are_no_hindrance() {
    let http_1_0 = |_: &str, answer: Vec<u8>| {
        let text = answer.strip_prefix(b"HTTP/1.1").map(|rest| [b"HTTP/1.0", rest].concat());
        text.unwrap_or(answer)
    };
    let no_date = |_: &str, answer: Vec<u8>| without_header(&answer, "date");
    let no_server = |_: &str, answer: Vec<u8>| without_header(&answer, "server");
    let no_content_type = |_: &str, answer: Vec<u8>| without_header(&answer, "content-type");
    // 100 Continue before the answer, asked for or not.
    let continued = |_: &str, answer: Vec<u8>| [b"HTTP/1.1 100 Continue\r\n\r\n", answer.as_slice()].concat();
    let calls = Arc::new(AtomicUsize::new(0));
    let retry_after = move |_: &str, whole: Vec<u8>| match calls.fetch_add(1, Relaxed).is_multiple_of(7) {
        true => answer("503 Slow Down", "Retry-After: 1\r\n", "").into_bytes(),
        false => whole,
    };
    type Change = Box<dyn Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync>;
    let changes: [(&str, Change); 6] = [
        ("HTTP/1.0", Box::new(http_1_0)),
        ("no Date", Box::new(no_date)),
        ("no Server", Box::new(no_server)),
        ("no Content-Type", Box::new(no_content_type)),
        ("100 Continue", Box::new(continued)),
        ("Retry-After", Box::new(retry_after)),
    ];
    for (name, change) in changes {
        let store = Store::start();
        let gateway = Gateway::changing(store.endpoint(), change);
        let finished = at(store.s3mq(BENCH), &gateway).run();
        finished.check(finished.stdout.contains("100 of 100 received"), name).exits(0);
        leaves_nothing(&store, &finished);
    }
}

/// S3 may answer a request 200 and say in the body that it failed.
#[test]
fn an_error_in_the_body_of_a_200_is_no_listing() {
    let store = Store::start();
    let calls = AtomicUsize::new(0);
    let gateway = Gateway::changing(store.endpoint(), move |head, whole| {
        let is_some = head.contains("list-type=2") && calls.fetch_add(1, Relaxed) % 3 == 1;
        let body =
            "<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>Try again.</Message></Error>";
        if is_some { with_body(&whole, body) } else { whole }
    });
    let finished = at(store.s3mq(BENCH), &gateway).run();
    finished.exits(0);
    leaves_nothing(&store, &finished);
}
