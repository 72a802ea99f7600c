//! An exec's arguments and variables, and whether the kernel will take them, told before anything is put into the caller.
//!
//! The stand-in is executed with what the caller gave. Were it refused for its size, the caller would go on with two
//! descriptors it does not know of, and nobody could take them back. So the kernel's arithmetic is done first.

use crate::memory::{self, PAGE};
use crate::sys;
use hmz_wire::Bytes;

/// Longest string, its zero byte included.
const MAX_STRING: usize = 128 << 10;

/// What is allowed however small the stack is, and however large.
const LIMITS: (u64, u64) = (128 << 10, 6 << 20);

/// The kernel's name of the program, which counts too: a path that ends with the number of a descriptor.
const NAME: usize = "/dev/fd/".len() + 10 + 1;

/// Bytes of a pointer, in the caller and in what is counted.
const POINTER: u64 = 8;

/// Strings looked at in one call, and of each no more than this at first.
const BATCH: usize = 256;
const HEAD: usize = 256;

/// What an exec was given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Strings {
    /// The arguments.
    pub(crate) argv: Vec<Bytes>,
    /// The variables.
    pub(crate) env: Vec<Bytes>,
}

/// Reads the two arrays of the exec of thread `tid`, which fit.
///
/// # Errors
/// The errno the kernel would answer: `E2BIG`, or `EFAULT` for what cannot be read.
pub(crate) fn read(tid: i32, argv: u64, envp: u64) -> Result<Strings, i32> {
    let mut left = (sys::stack_limit(tid) / 4).clamp(LIMITS.0, LIMITS.1);
    let mut places = Vec::new();
    pointers(tid, argv, left, &mut places)?;
    let argc = places.len();
    // without any the kernel makes one
    let made = u64::from(argc == 0);
    pointers(tid, envp, left, &mut places)?;
    take(&mut left, (places.len() as u64 + made) * POINTER + made)?;
    take(&mut left, NAME as u64)?;
    let (mut buffer, mut strings) = (Vec::new(), Vec::with_capacity(places.len()));
    for batch in places.chunks(BATCH) {
        take_strings(tid, batch, &mut buffer, &mut left, &mut strings)?;
    }
    let env = strings.split_off(argc);
    Ok(Strings { argv: strings, env })
}

fn take(left: &mut u64, bytes: u64) -> Result<(), i32> {
    *left = left.checked_sub(bytes).ok_or(libc::E2BIG)?;
    Ok(())
}

/// Adds the pointers of an array that ends with a null one; an array at null has none.
fn pointers(tid: i32, array: u64, limit: u64, found: &mut Vec<u64>) -> Result<(), i32> {
    if array == 0 {
        return Ok(());
    }
    let mut page = [0u8; PAGE as usize];
    let mut at = array;
    loop {
        // one that lies across two pages is read alone
        let room = ((PAGE - at % PAGE) / POINTER * POINTER).max(POINTER) as usize;
        memory::read(tid, at, &mut page[..room]).ok_or(libc::EFAULT)?;
        for raw in page[..room].chunks_exact(POINTER as usize) {
            match u64::from_ne_bytes(raw.try_into().map_err(|_| libc::EFAULT)?) {
                0 => return Ok(()),
                pointer => found.push(pointer),
            }
        }
        if found.len() as u64 * POINTER > limit {
            return Err(libc::E2BIG);
        }
        at = at.checked_add(room as u64).ok_or(libc::EFAULT)?;
    }
}

/// Takes some strings, their zero bytes counted.
fn take_strings(tid: i32, places: &[u64], buffer: &mut Vec<u8>, left: &mut u64, strings: &mut Vec<Bytes>) -> Result<(), i32> {
    let heads: Vec<(u64, usize)> = places.iter().map(|&at| (at, HEAD.min((PAGE - at % PAGE) as usize))).collect();
    buffer.resize(BATCH * HEAD, 0);
    // what was not read at once is read one by one, and told from what is not there
    let got = sys::read_many(tid, &heads, buffer).unwrap_or(0);
    let mut start = 0;
    for (at, len) in heads {
        let head = buffer.get(start..start + len).filter(|_| start + len <= got);
        start += len;
        let text = match head.and_then(|head| head.iter().position(|&b| b == 0).map(|end| &head[..end])) {
            Some(text) => Bytes::from(text),
            None => string(tid, at, *left)?,
        };
        take(left, text.len() as u64 + 1)?;
        strings.push(text);
    }
    Ok(())
}

/// One string, of no more than `left` bytes.
fn string(tid: i32, at: u64, left: u64) -> Result<Bytes, i32> {
    let mut page = [0u8; PAGE as usize];
    let mut text = Vec::new();
    while text.len() < MAX_STRING && text.len() as u64 <= left {
        let here = at.checked_add(text.len() as u64).ok_or(libc::EFAULT)?;
        let room = (PAGE - here % PAGE) as usize;
        memory::read(tid, here, &mut page[..room]).ok_or(libc::EFAULT)?;
        match page[..room].iter().position(|&b| b == 0) {
            Some(end) if text.len() + end < MAX_STRING => {
                text.extend_from_slice(&page[..end]);
                return Ok(text.into());
            }
            Some(_) => return Err(libc::E2BIG),
            None => text.extend_from_slice(&page[..room]),
        }
    }
    Err(libc::E2BIG)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process's strings and the array that points to them.
    fn array(strings: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u64>) {
        let strings: Vec<Vec<u8>> = strings.iter().map(|s| [s, &b"\0"[..]].concat()).collect();
        let pointers = strings.iter().map(|s| s.as_ptr() as u64).chain([0]).collect();
        (strings, pointers)
    }

    fn fits(argv: &[&[u8]], envp: &[&[u8]]) -> Result<(), i32> {
        let given = (argv, envp);
        let ((_one, argv), (_two, envp)) = (array(argv), array(envp));
        let read = read(std::process::id() as i32, argv.as_ptr() as u64, envp.as_ptr() as u64)?;
        assert!(read.argv.iter().map(|s| s.as_slice()).eq(given.0.iter().copied()), "the arguments as they are");
        assert!(read.env.iter().map(|s| s.as_slice()).eq(given.1.iter().copied()), "the variables as they are");
        Ok(())
    }

    #[test]
    fn a_string_has_its_own_limit() {
        let long = vec![b'a'; MAX_STRING];
        assert_eq!(fits(&[b"a", &long[1..]], &[]), Ok(()));
        assert_eq!(fits(&[b"a"], &[&long[1..]]), Ok(()));
        assert_eq!(fits(&[b"a", &long], &[]), Err(libc::E2BIG));
        assert_eq!(fits(&[], &[&long]), Err(libc::E2BIG));
    }

    #[test]
    fn all_of_them_have_one() {
        let limit = (sys::stack_limit(0) / 4).clamp(LIMITS.0, LIMITS.1) as usize;
        let word = vec![b'a'; 9_991];
        let words = limit / 10_000;
        let mut all: Vec<&[u8]> = vec![&word; words];
        // each took 10000 bytes with its zero and its pointer; so the rest is what the last one may take
        let rest = limit - words * 10_000 - NAME;
        let last = vec![b'b'; rest];
        all.push(&last[..rest - 9]);
        assert_eq!(fits(&all, &[]), Ok(()));
        assert_eq!(fits(&[], &all), Err(libc::E2BIG), "an argument that is made");
        all.pop();
        all.push(&last[..rest - 8]);
        assert_eq!(fits(&all, &[]), Err(libc::E2BIG));
    }

    #[test]
    fn what_is_nowhere_is_told_apart() {
        let own = std::process::id() as i32;
        assert_eq!(read(own, 0, 0), Ok(Strings { argv: Vec::new(), env: Vec::new() }));
        assert_eq!(read(own, 8, 0), Err(libc::EFAULT));
        assert_eq!(read(own, u64::MAX - 7, 0), Err(libc::EFAULT));
        let (_strings, mut pointers) = array(&[b"a", b"b"]);
        assert!(read(own, pointers.as_ptr() as u64, 0).is_ok());
        pointers[1] = 8;
        assert_eq!(read(own, pointers.as_ptr() as u64, 0), Err(libc::EFAULT));
        assert_eq!(read(own, 0, pointers.as_ptr() as u64), Err(libc::EFAULT));
    }
}
