#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osb_egress::fuzz::answer(data));
