//! Bad input is refused in one line with exit code 2, before anything is started.

use crate::harness::{S3mq, s3mq};
use crate::store::VARIABLES;

const BENCH: &str = "bench --range-start 100 --range-end 100 --range-step 100";

/// A command that has a store, as far as it can tell: nothing listens there.
fn with_variables(arguments: &str) -> S3mq {
    let values = ["http://127.0.0.1:1", "queue", "key", "secret"];
    VARIABLES.iter().zip(values).fold(s3mq(arguments), |command, (name, value)| command.env(name, value))
}

#[test]
fn rates_that_mean_nothing_are_refused() {
    for rate in ["0", "-1", "-0.5", "nan", "inf", "-inf", "1e12", "many"] {
        for flag in ["start", "end", "step"] {
            let others = ["start", "end", "step"].into_iter().filter(|other| *other != flag);
            let others: String = others.map(|other| format!(" --range-{other} 100")).collect();
            s3mq(&format!("bench{others}"))
                .arg(format!("--range-{flag}={rate}"))
                .run()
                .refuses(&["--range-", rate]);
        }
        with_variables("producer --lake-path queue --messages 1")
            .arg(format!("--rate={rate}"))
            .run()
            .refuses(&["--rate", rate]);
    }
}

#[test]
fn a_negative_rate_is_refused_as_a_rate_and_not_as_an_unknown_flag() {
    let finished = s3mq("bench --range-start -1 --range-end 100 --range-step 100").run();
    finished.refuses(&["--range-start", "above 0"]);
    with_variables("producer --lake-path queue --messages 1 --rate -1").run().refuses(&["--rate", "above 0"]);
}

#[test]
fn a_switch_in_the_environment_is_on_or_off_and_nothing_else() {
    with_variables("consumer --lake-path queue")
        .env("S3MQ_QUIET", "maybe")
        .run()
        .refuses(&["--quiet", "maybe"]);
}

#[test]
fn one_rate_needs_no_range_and_goes_with_none() {
    let bench =
        s3mq("bench --rate 1k --seconds-to-stream 500ms --autocommit-duration-ms 50ms --message-size 300B");
    let finished = bench.arg("--quiet").run();
    finished.exits(0);
    let result: serde_json::Value =
        serde_json::from_str(&finished.read("benchmark-results/1000.json")).unwrap();
    finished.check(result["run"]["message_bytes"] == 300, "bytes a message");
    finished.check(result["result"]["producer"]["planned"] == 500, "messages");
    s3mq("bench --rate 1k --range-start 1").run().refuses(&["--rate", "--range-start"]);
    s3mq("bench --range-start 1").run().refuses(&["--range-end", "--range-step"]);
}

#[test]
fn an_unknown_option_has_no_misleading_tip() {
    let finished = s3mq("bench --rate 10 --commit-interval 50").run();
    finished.refuses(&["--commit-interval"]);
    finished.check(!finished.stderr.contains("--checkpoint-interval"), "another option is suggested");
}

#[test]
fn a_range_that_runs_backwards_is_refused() {
    s3mq("bench --range-start 200 --range-end 100 --range-step 100")
        .run()
        .refuses(&["--range-start", "--range-end"]);
}

#[test]
fn a_sweep_of_more_rates_than_anybody_waits_for_is_refused() {
    s3mq("bench --range-start 1 --range-end 100000000 --range-step 0.000001 --data-dir data")
        .run()
        .refuses(&["--range-step"]);
}

#[test]
fn a_rate_at_which_no_message_is_due_is_refused() {
    s3mq("bench --range-start 0.1 --range-end 1 --range-step 1 --seconds-to-stream 2")
        .run()
        .refuses(&["not one message", "--seconds-to-stream"]);
    with_variables("producer --lake-path queue --rate 0.1 --seconds-to-stream 2")
        .run()
        .refuses(&["not one message"]);
}

#[test]
fn times_that_mean_nothing_are_refused() {
    for seconds in ["0", "-1", "nan", "inf", "1e12"] {
        s3mq(BENCH).arg(format!("--seconds-to-stream={seconds}")).run().refuses(&["--seconds-to-stream"]);
        s3mq(BENCH)
            .arg(format!("--drain-timeout-seconds={seconds}"))
            .run()
            .refuses(&["--drain-timeout-seconds"]);
    }
    for seconds in ["-1", "nan", "inf"] {
        s3mq(BENCH).arg(format!("--warmup-seconds={seconds}")).run().refuses(&["--warmup-seconds"]);
    }
    s3mq(BENCH).arg("--autocommit-duration-ms=0").run().refuses(&["--autocommit-duration-ms"]);
}

#[test]
fn a_warm_up_that_leaves_nothing_to_measure_is_refused() {
    s3mq(BENCH).arg("--seconds-to-stream=2").arg("--warmup-seconds=2").run().refuses(&["--warmup-seconds"]);
}

#[test]
fn an_unknown_backend_is_refused_with_those_there_are() {
    for command in
        [BENCH, "producer --lake-path queue --rate 1 --messages 1", "consumer --lake-path queue", "check"]
    {
        s3mq(command).arg("--s3-backend=azure").run().refuses(&["azure", "embedded", "minio", "s3"]);
    }
}

#[test]
fn each_missing_variable_is_named() {
    let commands =
        [BENCH, "producer --lake-path queue --rate 1 --messages 1", "consumer --lake-path queue", "check"];
    for (command, variable) in
        commands.iter().flat_map(|command| VARIABLES.map(|variable| (command, variable)))
    {
        let arguments = format!("{command} --s3-backend minio");
        with_variables(&arguments).env_remove(variable).run().refuses(&[&format!("{variable} is not set")]);
        with_variables(&arguments).env(variable, "").run().refuses(&[&format!("{variable} is not set")]);
    }
    for command in commands {
        s3mq(command).arg("--s3-backend=s3").run().refuses(&["AWS_S3_BUCKET is not set"]);
    }
}

#[test]
fn half_of_a_key_is_refused() {
    let keys = ["AWS_S3_ACCESS_KEY", "AWS_S3_SECRET_ACCESS_KEY"];
    for (set, missing) in [(keys[0], keys[1]), (keys[1], keys[0])] {
        s3mq("check --s3-backend s3 --bucket queue")
            .env(set, "half-of-it")
            .run()
            .refuses(&[&format!("{set} is set"), missing]);
    }
    for variable in ["S3MQ_SERVE_ACCESS_KEY", "S3MQ_SERVE_SECRET_KEY"] {
        s3mq("serve")
            .env(variable, "half-of-it")
            .run()
            .refuses(&["S3MQ_SERVE_ACCESS_KEY", "S3MQ_SERVE_SECRET_KEY"]);
    }
}

#[test]
fn a_malformed_endpoint_is_refused() {
    for endpoint in
        ["127.0.0.1:9000", "localhost", "ftp://localhost", "http://local host:9000", "http://", "http://h:x"]
    {
        let with = |arguments| with_variables(arguments).env("MINIO_S3_ENDPOINT", endpoint);
        for command in
            [BENCH, "producer --lake-path queue --rate 1 --messages 1", "consumer --lake-path queue"]
        {
            with(command).run().refuses(&["endpoint", endpoint, "http://HOST:PORT"]);
        }
        with_variables("check").arg("--endpoint").arg(endpoint).run().refuses(&["endpoint", endpoint]);
    }
}

#[test]
fn a_lake_path_without_a_bucket_or_out_of_it_is_refused() {
    for path in [
        "s3://",
        "s3:///x",
        "s3://bucket",
        "s3://bucket/",
        "s3://bucket/../x",
        "a/../b",
        "..",
        "",
        "/",
        "gs://b/x",
    ] {
        for command in ["producer --rate 1 --messages 1", "consumer"] {
            with_variables(command).arg(format!("--lake-path={path}")).run().refuses(&["--lake-path"]);
        }
    }
    // A bucket's name that no store takes.
    with_variables("consumer --lake-path s3://Bu_cket/x").run().refuses(&["Bu_cket", "bucket name"]);
    with_variables("consumer --lake-path s3://one-bucket/x --bucket another")
        .run()
        .refuses(&["one-bucket", "another"]);
}

#[test]
fn a_prefix_that_is_empty_or_means_several_places_is_refused() {
    for prefix in ["", "/", "a/../b", "100%41"] {
        with_variables("check").arg(format!("--prefix={prefix}")).run().refuses(&["--prefix"]);
        s3mq(BENCH).arg(format!("--prefix={prefix}")).run().refuses(&["--prefix"]);
    }
}

#[test]
fn results_that_cannot_be_written_are_refused() {
    // Permissions don't hold a superuser back; these places do.
    for place in ["/proc/results", "/dev/null", "/dev/null/results"] {
        s3mq(BENCH).arg("--output-dir").arg(place).run().refuses(&["--output-dir", place]);
        with_variables("consumer --lake-path queue")
            .arg("--output-path")
            .arg(format!("{place}/1.csv"))
            .run()
            .refuses(&[place]);
    }
}

#[test]
fn a_result_file_whose_name_is_taken_by_a_directory_is_refused() {
    for flag in ["--output-path", "--raw-output-path"] {
        with_variables("consumer --lake-path queue").arg(flag).arg(".").run().refuses(&["directory"]);
    }
}

#[test]
fn two_results_in_one_file_are_refused() {
    for files in ["--output-path a.csv --raw-output-path a.csv", "--raw-output-path a --hlog-output-path ./a"]
    {
        with_variables(&format!("consumer --lake-path queue {files}"))
            .run()
            .refuses(&["same file", "--raw-output-path"]);
    }
}

#[test]
fn a_message_that_cannot_hold_its_stamp_is_refused() {
    for size in ["0", "16"] {
        s3mq(BENCH).arg("--message-size").arg(size).run().refuses(&["--message-size", "17"]);
        with_variables("producer --lake-path queue --rate 1 --messages 1 --message-size")
            .arg(size)
            .run()
            .refuses(&["--message-size", "17"]);
    }
}

#[test]
fn flags_that_exclude_each_other_are_refused() {
    s3mq(BENCH).arg("--interval-seconds=0.001").run().refuses(&["--interval-seconds", "0.01"]);
    s3mq(BENCH).arg("--poll-interval-ms=5").run().refuses(&["--poll-interval-ms", "--poll fixed"]);
    with_variables("consumer --lake-path queue --poll-interval-ms 5").run().refuses(&["--poll-interval-ms"]);
    with_variables("producer --lake-path queue --rate 1 --messages 1 --seconds-to-stream 1")
        .run()
        .refuses(&["--messages", "--seconds-to-stream"]);
    with_variables("producer --lake-path queue --rate 1").run().refuses(&["--seconds-to-stream"]);
    with_variables(BENCH).arg("--data-dir=data").run().refuses(&["--data-dir", "embedded"]);
    s3mq(BENCH).arg("--bucket=mine").run().refuses(&["--bucket", "embedded"]);
}

#[test]
fn a_role_on_its_own_is_told_how_to_get_an_embedded_store() {
    for command in ["producer --lake-path queue --rate 1 --messages 1", "consumer --lake-path queue", "check"]
    {
        s3mq(command).run().refuses(&["s3mq serve"]);
        with_variables(command).arg("--s3-backend=embedded").run().refuses(&["s3mq serve"]);
    }
}

#[test]
fn a_bench_that_would_fill_the_memory_is_refused() {
    let sweep =
        "bench --range-start 100000000 --range-end 100000000 --range-step 1 --seconds-to-stream 31536000";
    s3mq(sweep).run().refuses(&["--data-dir", "memory"]);
    // Each rate would fit; all of them, kept, would not, however large their sum becomes.
    let sweep = "bench --range-start 1 --range-end 100000000 --range-step 20000 --seconds-to-stream 31536000";
    s3mq(sweep).arg("--keep-data").run().refuses(&["--data-dir", "memory"]);
}
