#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osb_execd::fuzz::stream(data));
