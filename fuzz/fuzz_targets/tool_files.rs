#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weigh_fuzz::tool_files(data));
