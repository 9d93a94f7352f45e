//! Every form of an endpoint means the same to both clients, and nothing in the environment means another.

use std::net::TcpListener;

use serde_json::Value;

use crate::gateway::{AUTHORITY, Gateway, answer, refusal, tls_door, tls_door_on};
use crate::harness::{Finished, S3mq, s3mq};
use crate::store::{ACCESS_KEY, SECRET_KEY, Store};

const BENCH: &str = "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 1 \
                     --autocommit-duration-ms 100 --quiet";

/// Every command that needs a store, in an order in which each finds what it needs.
const COMMANDS: [&str; 6] = [
    "check --round-trips 1",
    BENCH,
    "preload --lake-path queue --versions 3 --quiet",
    "checkpoint --lake-path queue --at-version 2",
    "producer --lake-path queue --rate max --messages 10 --checkpoint-interval 2",
    "consumer --lake-path queue",
];

/// Every command works with what `change` makes of it.
fn every_command_works(store: &Store, change: impl Fn(S3mq) -> S3mq) -> Vec<Finished> {
    let run = |command: &&str| {
        let finished = change(store.s3mq(command)).run();
        finished.exits(0);
        finished
    };
    let all: Vec<_> = COMMANDS.iter().map(run).collect();
    // Ten of the producer, and three of the preload, whose end the producer's is.
    let consumed = all.iter().find(|finished| finished.stdout.contains("\"event\":\"consumed\"")).unwrap();
    consumed.check(consumed.event("consumed")["received"] == 13, "not all was received");
    let produced = all.iter().find(|finished| finished.stdout.contains("\"event\":\"produced\"")).unwrap();
    produced.check(produced.event("produced")["checkpoints"]["made"] == 1, "no checkpoint was made");
    all
}

#[test]
fn a_slash_at_its_end_changes_nothing() {
    let store = Store::start();
    let endpoint = format!("{}/", store.endpoint());
    every_command_works(&store, |command| command.env("MINIO_S3_ENDPOINT", &endpoint));
}

#[test]
fn a_host_may_be_a_name_or_an_address_of_either_kind() {
    let store = Store::start();
    let port = store.endpoint().rsplit(':').next().unwrap().to_owned();
    let check =
        store.s3mq("check --round-trips 1").env("MINIO_S3_ENDPOINT", &format!("http://localhost:{port}"));
    check.run().exits(0);

    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this host has no IPv6 loopback");
        return;
    }
    let store = Store::with("--listen [::1]:0");
    assert!(store.endpoint().starts_with("http://[::1]:"), "{}", store.endpoint());
    every_command_works(&store, |command| command);
}

#[test]
fn any_word_may_be_the_region() {
    let store = Store::start();
    every_command_works(&store, |command| command.env("MINIO_S3_REGION", "minio"));
}

/// A reverse proxy may have its store below a path.
#[test]
fn a_path_comes_before_the_bucket_in_the_requests_of_both_clients() {
    let empty = "<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>";
    let gateway = Gateway::alone(move |head| match head.starts_with("GET") {
        true => answer("200 OK", "Content-Type: application/xml\r\n", empty),
        false => refusal("403 Forbidden", "AccessDenied", "No"),
    });
    for slash in ["", "/"] {
        let command = Store::start().s3mq("check");
        let endpoint = format!("{}/behind/s3{slash}", gateway.endpoint());
        command
            .env("MINIO_S3_ENDPOINT", &endpoint)
            .run()
            .exits(1)
            .complains(&["access denied", "/behind/s3"]);
    }
    // The SDK lists, and the queue's client writes.
    let paths: Vec<_> =
        gateway.heads().iter().map(|head| head.split('?').next().unwrap().to_owned()).collect();
    assert!(paths.iter().any(|path| path.trim_end_matches('/') == "GET /behind/s3/s3mq"), "{paths:?}");
    assert!(paths.iter().any(|path| path.starts_with("PUT /behind/s3/s3mq/adhoc/")), "{paths:?}");
    assert!(paths.iter().all(|path| path.contains(" /behind/s3/s3mq")), "{paths:?}");
}

#[test]
fn a_private_authority_is_believed_where_it_is_given() {
    let store = Store::start();
    let endpoint = tls_door(store.endpoint());
    let tls = |command: S3mq| command.env("MINIO_S3_ENDPOINT", &endpoint);
    every_command_works(&store, |command| tls(command).env("S3MQ_CA_CERT", AUTHORITY));
    for command in ["check", "consumer --lake-path queue", BENCH] {
        tls(store.s3mq(command)).run().exits(1).complains(&["does not answer", "--ca-cert"]);
    }
}

#[test]
fn an_unchecked_certificate_is_said_loudly() {
    let store = Store::start();
    let endpoint = tls_door(store.endpoint());
    let all = every_command_works(&store, |command| {
        command.env("MINIO_S3_ENDPOINT", &endpoint).env("S3MQ_INSECURE", "true")
    });
    for finished in &all {
        // All but the checkpoint try the store out first.
        let said = finished.stderr.starts_with("warning: --insecure: ");
        let is_checkpoint = finished.stdout.contains("\"event\":\"checkpointed\"");
        finished.check(said != is_checkpoint, "what it says of --insecure");
    }
    let bench = &all[1];
    let result: Value = serde_json::from_str(&bench.read("benchmark-results/100.json")).unwrap();
    let place = result["run"]["store"].as_str().unwrap();
    bench.check(place.ends_with(", certificates not checked"), place);
    bench.check(bench.stdout.lines().next().unwrap().contains("certificates not checked"), "the first line");
}

#[test]
fn a_certificate_of_another_host_is_not_believed() {
    let store = Store::start();
    let endpoint = tls_door_on("127.0.0.2", store.endpoint());
    let check = store.s3mq("check").env("MINIO_S3_ENDPOINT", &endpoint).env("S3MQ_CA_CERT", AUTHORITY);
    check.run().exits(1).complains(&["does not answer", "certificate is that of another host"]);
}

#[test]
fn what_is_wrong_with_certificates_is_refused() {
    let store = Store::start();
    let check = |arguments: &str| store.s3mq(&format!("check {arguments}"));
    check("--insecure").run().refuses(&["--insecure", "https://"]);
    check("--ca-cert").arg(AUTHORITY).run().refuses(&["--ca-cert", "https://"]);
    let https = |arguments: &str| check(&format!("{arguments} --endpoint https://127.0.0.1:1"));
    https("--ca-cert none.pem").run().refuses(&["--ca-cert none.pem"]);
    https("--ca-cert /proc/self/cmdline")
        .run()
        .refuses(&["--ca-cert /proc/self/cmdline: ", "no certificate"]);
    https("--insecure").arg("--ca-cert").arg(AUTHORITY).run().refuses(&["--insecure", "--ca-cert"]);
    for flag in ["--insecure", "--ca-cert=x"] {
        crate::harness::s3mq(BENCH).arg(flag).run().refuses(&[&flag[..8], "embedded"]);
    }
}

#[test]
fn the_other_scheme_is_suggested() {
    let store = Store::start();
    let plain = store.endpoint();
    let tls = tls_door(plain);
    for command in ["check", "consumer --lake-path queue", BENCH] {
        let https = plain.replace("http://", "https://");
        store.s3mq(command).env("MINIO_S3_ENDPOINT", &https).run().exits(1).complains(&["is it http://?"]);
        let http = tls.replace("https://", "http://");
        store.s3mq(command).env("MINIO_S3_ENDPOINT", &http).run().exits(1).complains(&["is it https://?"]);
    }
    // Without a preflight too.
    let role = |endpoint: &str| {
        let role =
            "producer --lake-path queue --rate 1 --messages 1 --no-preflight --stall-timeout-seconds 2";
        store.s3mq(role).env("MINIO_S3_ENDPOINT", endpoint).run()
    };
    role(&plain.replace("http://", "https://")).exits(1).complains(&["is it http://?"]);
    role(&tls.replace("https://", "http://")).exits(1).complains(&["is it https://?"]);
    // As servers written in Go say it, nginx, and Apache.
    for body in [
        "Client sent an HTTP request to an HTTPS server.\n",
        "<html><title>400 The plain HTTP request was sent to HTTPS port</title></html>",
        "<html><p>Reason: You're speaking plain HTTP to an SSL-enabled server port.</p></html>",
    ] {
        let gateway = Gateway::alone(move |_| answer("400 Bad Request", "", body));
        let check = store.s3mq("check").env("MINIO_S3_ENDPOINT", &gateway.endpoint());
        check.run().exits(1).complains(&["is it https://?"]);
        role(&gateway.endpoint()).exits(1).complains(&["is it https://?"]);
    }
}

#[test]
fn a_server_that_knows_no_s3_is_said_to_be_one() {
    for status in ["200 OK", "302 Found", "404 Not Found"] {
        let headers = "Content-Type: text/html\r\nLocation: /login\r\n";
        let gateway = Gateway::alone(move |_| answer(status, headers, "<html><body>Welcome</body></html>"));
        let check = Store::start().s3mq("check").env("MINIO_S3_ENDPOINT", &gateway.endpoint()).run();
        let words = ["is no S3 server", &status[..3], "text/html", "check the endpoint"];
        check.exits(1).complains(&words);
    }
}

/// A password that was put into an endpoint by mistake.
#[test]
fn the_help_does_not_show_what_an_endpoint_is_set_to() {
    let help = s3mq("check --help").env("S3MQ_ENDPOINT", "https://user:password@host").run();
    help.exits(0);
    help.check(help.stdout.contains("S3MQ_ENDPOINT") && !help.stdout.contains("password@"), "it shows it");
}

#[test]
fn another_region_is_said() {
    let store = Store::start();
    let expected = "The authorization header is malformed; the region is wrong; expecting 'eu-west-1'.";
    let malformed = refusal("400 Bad Request", "AuthorizationHeaderMalformed", expected);
    let body = "<Error><Code>PermanentRedirect</Code><Message>Use another endpoint.</Message></Error>";
    let moved = answer(
        "301 Moved Permanently",
        "Content-Type: application/xml\r\nx-amz-bucket-region: eu-west-1\r\n",
        body,
    );
    let gateway = Gateway::alone(move |_| answer("301 Moved Permanently", "", ""));
    let check = store.s3mq("check").env("MINIO_S3_ENDPOINT", &gateway.endpoint());
    check.run().exits(1).complains(&["another region", "(it doesn't say which)", "--region"]);
    for refused in [malformed, moved] {
        let gateway = Gateway::alone(move |_| refused.clone());
        let check = store.s3mq("check").env("MINIO_S3_ENDPOINT", &gateway.endpoint());
        check.run().exits(1).complains(&["another region", "eu-west-1", "--region"]);
    }
}

/// Whatever the environment has for other programs: all requests go to the endpoint that was given, and a commit
/// keeps its condition.
#[test]
fn nothing_ambient_leads_a_request_elsewhere_or_weakens_a_commit() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let elsewhere_url = format!("http://{}", elsewhere.local_addr().unwrap());
    let store = Store::start();
    let gateway = Gateway::before(store.endpoint(), |_| None);
    let lead_astray = |mut command: S3mq| {
        let profile = format!(
            "[profile other]\nendpoint_url = {elsewhere_url}\nregion = nowhere\nuse_dualstack_endpoint = true\n\
             use_fips_endpoint = true\naws_access_key_id = another\naws_secret_access_key = another\n"
        );
        std::fs::create_dir_all(command.path(".aws")).unwrap();
        std::fs::write(command.path(".aws/config"), profile).unwrap();
        for name in [
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
        ] {
            command = command.env(name, &elsewhere_url);
        }
        for (name, value) in [
            ("AWS_PROFILE", "other"),
            ("AWS_REGION", "nowhere"),
            ("AWS_USE_DUALSTACK_ENDPOINT", "true"),
            ("AWS_USE_FIPS_ENDPOINT", "true"),
            ("AWS_S3_ALLOW_UNSAFE_RENAME", "true"),
            ("AWS_CONDITIONAL_PUT", "disabled"),
            ("AWS_SKIP_SIGNATURE", "true"),
            ("AWS_ALLOW_HTTP", "false"),
            ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true"),
            ("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported"),
        ] {
            command = command.env(name, value);
        }
        command
    };
    let endpoint = gateway.endpoint();
    let minio =
        every_command_works(&store, |command| lead_astray(command.env("MINIO_S3_ENDPOINT", &endpoint)));
    drop(minio);
    let s3 = store.s3mq(BENCH).arg("--s3-backend=s3").arg("--endpoint").arg(&endpoint).arg("--bucket=s3mq");
    let s3 = s3.env("AWS_S3_ACCESS_KEY", ACCESS_KEY).env("AWS_S3_SECRET_ACCESS_KEY", SECRET_KEY);
    lead_astray(s3).run().exits(0);

    assert!(elsewhere.accept().is_err(), "a request went elsewhere");
    let heads = gateway.heads();
    let commits: Vec<_> = heads
        .iter()
        .filter(|head| {
            let line = head.lines().next().unwrap();
            line.starts_with("PUT ") && line.contains("/_delta_log/") && line.contains(".json ")
        })
        .collect();
    assert!(commits.len() > 20, "{} commits", commits.len());
    for head in commits {
        assert!(head.to_lowercase().contains("\r\nif-none-match: *\r\n"), "{head}");
    }
}

/// A table that is created on a store that never answers (delta-rs once tried for hours).
#[test]
fn without_a_preflight_a_role_ends_within_its_deadlines_too() {
    for command in ["producer --lake-path queue --rate 1 --messages 1", "consumer --lake-path queue"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let deadlines =
            "--no-preflight --request-timeout-seconds 1 --retry-timeout-seconds 2 --stall-timeout-seconds 3";
        let command =
            Store::start().s3mq(&format!("{command} {deadlines}")).env("MINIO_S3_ENDPOINT", &endpoint);
        command.run().exits(1);
    }
}
