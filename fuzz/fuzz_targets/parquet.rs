#![no_main]

// A panic that the decoding catches is none, but libfuzzer's own hook would end the process at once. One of the check
// is told, and ends it as it leaves the target.
libfuzzer_sys::fuzz_target!(init: tell_only_ours(), |input: &[u8]| s3mq_fuzz::parquet::check(input));

fn tell_only_ours() {
    std::panic::set_hook(Box::new(|panic| {
        if panic.location().is_some_and(|place| place.file() == "src/parquet.rs") {
            eprintln!("{panic}");
        }
    }));
}
