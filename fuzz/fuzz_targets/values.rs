#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| s3mq_fuzz::values::check(input));
