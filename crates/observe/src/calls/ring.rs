//! Ring buffers of `perf_event_open(2)`, and the samples in them.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of the data of a buffer, a power of two: some 40,000 calls, which last for 20 ms or more.
const DATA_BYTES: usize = 4 << 20;
/// Offsets of `data_head` and `data_tail` in `struct perf_event_mmap_page`.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
/// Bytes of `struct perf_event_header`, and of the identifier and the size of the raw data that
/// follow it in a sample.
const HEADER_BYTES: usize = 8;
const RAW_AT: usize = 20;
/// Numbers from here on are all taken for this one: the kernel has no such calls, and a guest that
/// makes them up must not fill this process's memory.
pub(super) const NO_CALL: u64 = 1024;
/// `PERF_SAMPLE_REGS_ABI_32`.
const ABI_32: u64 = 1;

/// A buffer that the kernel fills with the samples of one CPU.
#[derive(Debug)]
pub(super) struct Ring {
    base: *mut c_void,
    page_bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and is only reached through this value.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the buffer of an event, which gets one by that.
    pub(super) fn map(event: &File) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        let (length, protection) = (page_bytes + DATA_BYTES, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap(null_mut(), length, protection, MapFlags::SHARED, event, 0) }?;
        Ok(Self { base, page_bytes })
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first page of the mapping has an aligned u64 there, which the kernel and this
        // process access atomically, for as long as `self` lives.
        unsafe { AtomicU64::from_ptr(self.base.cast::<u8>().add(at).cast()) }
    }

    /// Appends all new records to `into`, and gives their room back to the kernel.
    pub(super) fn drain(&self, into: &mut Vec<u8>) {
        // The kernel writes records before it moves the head (`perf_output_put_handle`).
        let head = self.position(HEAD_AT).load(Ordering::Acquire);
        let tail = self.position(TAIL_AT).load(Ordering::Relaxed);
        for part in parts(tail, head, DATA_BYTES) {
            // SAFETY: the range is within the data, which begins on the second page, and the kernel
            // does not write between tail and head.
            into.extend_from_slice(unsafe {
                &*slice_from_raw_parts(self.base.cast::<u8>().add(self.page_bytes + part.start), part.len())
            });
        }
        self.position(TAIL_AT).store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing refers to it any more.
        let _ = unsafe { munmap(self.base, self.page_bytes + DATA_BYTES) };
    }
}

/// The places in a buffer of `size` bytes from `tail` to `head`, which grow without end: one range,
/// or two where the buffer begins again.
fn parts(tail: u64, head: u64, size: usize) -> [Range<usize>; 2] {
    let length = usize::try_from(head.wrapping_sub(tail)).unwrap_or(size).min(size);
    let start = (tail % size as u64) as usize;
    let end = (start + length).min(size);
    [start..end, 0..length - (end - start)]
}

/// A system call as a sample has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    /// Number of the event that it belongs to.
    pub(super) event: u64,
    /// Number of the call, at most [`NO_CALL`].
    pub(super) number: u64,
    /// Whether a 32-bit program made it, whose calls have other numbers.
    pub(super) is_32_bit: bool,
}

/// The system calls among whole records, for events whose samples have
/// [`super::SAMPLE_TYPE`]. Other records are skipped, and so is the rest after one that makes no
/// sense. `number_at` is the offset of the number of the call in the raw data.
pub(super) fn calls(mut records: &[u8], number_at: usize) -> impl Iterator<Item = Call> {
    std::iter::from_fn(move || {
        loop {
            let kind = u32::from_ne_bytes(at(records, 0)?);
            let size = usize::from(u16::from_ne_bytes(at(records, 6)?));
            let record = records.get(..size).filter(|_| size >= HEADER_BYTES)?;
            records = &records[size..];
            if let Some(call) = (kind == SAMPLE).then(|| call(record, number_at)).flatten() {
                return Some(call);
            }
        }
    })
}

fn call(record: &[u8], number_at: usize) -> Option<Call> {
    let raw_bytes = u32::from_ne_bytes(at(record, RAW_AT - 4)?) as usize;
    // The registers follow the raw data; before them is the kind of program.
    let abi = u64::from_ne_bytes(at(record, RAW_AT.checked_add(raw_bytes)?)?);
    Some(Call {
        event: u64::from_ne_bytes(at(record, HEADER_BYTES)?),
        number: u64::from_ne_bytes(at(record, RAW_AT + number_at)?).min(NO_CALL),
        is_32_bit: abi == ABI_32,
    })
}

/// The bytes of a number.
fn at<const N: usize>(bytes: &[u8], place: usize) -> Option<[u8; N]> {
    bytes.get(place..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER_AT: usize = 8;

    fn calls(records: &[u8]) -> impl Iterator<Item = Call> {
        super::calls(records, NUMBER_AT)
    }

    /// A sample as Linux 6.18 writes it: 68 bytes of raw data, one register.
    fn sample(event: u64, number: u64, abi: u64) -> Vec<u8> {
        let mut raw = [0; 68];
        raw[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_ne_bytes());
        let mut body = event.to_ne_bytes().to_vec();
        body.extend_from_slice(&68_u32.to_ne_bytes());
        body.extend_from_slice(&raw);
        body.extend_from_slice(&abi.to_ne_bytes());
        body.extend_from_slice(&[0; 8]);
        record(SAMPLE, &body)
    }

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut record = kind.to_ne_bytes().to_vec();
        record.extend_from_slice(&[0, 0]);
        record.extend_from_slice(&size.to_ne_bytes());
        record.extend_from_slice(body);
        record
    }

    #[test]
    fn calls_are_read_and_other_records_skipped() {
        // PERF_RECORD_LOST: the event and a number of records.
        let lost = record(2, &[0; 16]);
        let bytes = [sample(7, 110, 2), lost, sample(8, 20, 1)].concat();
        assert_eq!(bytes.len(), 104 + 24 + 104);
        let call = |event, number, is_32_bit| Call { event, number, is_32_bit };
        assert_eq!(calls(&bytes).collect::<Vec<_>>(), [call(7, 110, false), call(8, 20, true)]);
    }

    /// A kernel with another field before the number, such as that of RHEL 9.
    #[test]
    fn the_number_is_read_where_the_kernel_puts_it() {
        let mut bytes = sample(7, 1, 2);
        bytes[RAW_AT + 16..RAW_AT + 24].copy_from_slice(&110_u64.to_ne_bytes());
        let numbers: Vec<u64> = super::calls(&bytes, 16).map(|call| call.number).collect();
        assert_eq!(numbers, [110]);
    }

    #[test]
    fn numbers_that_a_guest_makes_up_are_one() {
        let bytes: Vec<u8> = [NO_CALL - 1, NO_CALL, 1 << 40, u64::MAX]
            .into_iter()
            .flat_map(|number| sample(7, number, 2))
            .collect();
        let numbers: Vec<u64> = calls(&bytes).map(|call| call.number).collect();
        assert_eq!(numbers, [NO_CALL - 1, NO_CALL, NO_CALL, NO_CALL]);
    }

    #[test]
    fn records_that_make_no_sense_end_the_reading() {
        let whole = sample(7, 110, 2);
        assert_eq!(calls(&[&whole[..], &[0; 64]].concat()).count(), 1, "a record without length");
        assert_eq!(calls(&whole[..90]).count(), 0, "a record that is cut off");
        let mut long = whole.clone();
        long[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(calls(&[long, whole].concat()).count(), 1, "raw data beyond the end of its record");
        assert_eq!(calls(&[]).count(), 0);
    }

    #[test]
    fn a_buffer_that_begins_again_is_read_in_order() {
        assert_eq!(parts(0, 0, 64), [0..0, 0..0]);
        assert_eq!(parts(8, 40, 64), [8..40, 0..0]);
        assert_eq!(parts(40, 64, 64), [40..64, 0..0]);
        assert_eq!(parts(64 * 3 + 40, 64 * 4 + 16, 64), [40..64, 0..16]);
        assert_eq!(parts(16, 80, 64), [16..64, 0..16], "a full buffer");
        // A sample across the end of the buffer.
        let (whole, size) = (sample(7, 110, 2), 128);
        let tail = 100_u64;
        let mut buffer = vec![0; size];
        for (place, byte) in whole.iter().enumerate() {
            buffer[(tail as usize + place) % size] = *byte;
        }
        let ranges = parts(tail, tail + whole.len() as u64, size);
        let read: Vec<u8> = ranges.into_iter().flat_map(|range| buffer[range].to_vec()).collect();
        assert_eq!(read, whole);
    }
}
