//! Change of directory as the user that a child runs as.

use std::{
    ffi::CString,
    io,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::Path,
    process::Command,
};

/// Makes a command enter a directory after the steps prepared so far. The standard library's
/// `current_dir` would come before them.
///
/// # Errors
/// When the path contains a NUL.
pub(super) fn enter(command: &mut Command, directory: &Path) -> io::Result<()> {
    let directory = CString::new(directory.as_os_str().as_bytes())?;
    #[expect(
        unsafe_code,
        reason = "a directory can only be entered with another identity between fork and exec"
    )]
    // SAFETY: the closure makes one raw system call on memory prepared before the fork; it neither
    // allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || Ok(rustix::process::chdir(directory.as_c_str())?));
    }
    Ok(())
}
