//! Trial of each layer, in a child that exits without starting a program.

use std::{
    fs::File,
    io::{self, Read},
    os::{fd::AsFd, unix::process::CommandExt},
    process::Command,
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    thread::set_no_new_privs,
};

use super::{Steps, capability, landlock, landlock::Policy};

/// Results of the optional layers.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) cut_bounding: io::Result<()>,
    pub(super) no_new_privs: io::Result<()>,
    pub(super) drop: io::Result<()>,
    pub(super) files: io::Result<()>,
    pub(super) calls: io::Result<()>,
}

/// The child reports one error number for each layer, 0 for success.
const NUMBERS: usize = 5;
const BYTES: usize = NUMBERS * size_of::<i32>();

/// Tries each step, independently of the others. Waits for the child, so no other code may reap
/// children yet.
///
/// # Errors
/// When the trial itself failed.
pub(super) fn probe(steps: &Steps) -> io::Result<Tried> {
    let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
    let rules = steps
        .files
        .as_ref()
        .map(Policy::rules_of_places)
        .transpose()
        .map_err(|error| number(Err(error)));
    let calls = steps.calls.clone();
    let keep = steps.keep;
    let attempt = move || -> io::Result<()> {
        let cut_bounding = capability::cut_bounding(keep);
        let no_new_privs = set_no_new_privs(true);
        let drop = capability::reduce_to(keep);
        let files = match &rules {
            Ok(Some(rules)) => number(landlock::restrict(rules.as_fd())),
            Ok(None) => 0,
            Err(number) => *number,
        };
        let calls = calls.as_ref().map_or(0, |calls| number(calls.install()));
        let numbers = [
            number(cut_bounding.map_err(io::Error::from)),
            number(no_new_privs.map_err(io::Error::from)),
            number(drop.map_err(io::Error::from)),
            files,
            calls,
        ];
        let mut report = [0; BYTES];
        for (place, number) in report.chunks_exact_mut(size_of::<i32>()).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        rustix::io::write(&to, &report)?;
        // The child must not execute a program.
        Err(Errno::CANCELED.into())
    };
    let mut command = Command::new("/proc/self/exe");
    #[expect(
        unsafe_code,
        reason = "rights can only be given up between fork and exec"
    )]
    // SAFETY: the closure makes raw system calls on memory prepared before the fork; it neither
    // allocates nor takes a lock.
    unsafe {
        command.pre_exec(attempt);
    }
    let Err(ended) = command.spawn() else {
        return Err(io::Error::other("the child did not end"));
    };
    // The command holds the write end of the pipe.
    drop(command);
    let mut report = [0; BYTES];
    if File::from(from).read_exact(&mut report).is_err() {
        return Err(ended);
    }
    let mut results = report.chunks_exact(size_of::<i32>()).map(|bytes| {
        match i32::from_ne_bytes(bytes.try_into().expect("as many as a number has")) {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    });
    let mut next = || results.next().expect("there are five");
    Ok(Tried {
        cut_bounding: next(),
        no_new_privs: next(),
        drop: next(),
        files: next(),
        calls: next(),
    })
}

fn number(done: io::Result<()>) -> i32 {
    const ODD: i32 = Errno::INVAL.raw_os_error();
    match done {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(ODD),
    }
}
