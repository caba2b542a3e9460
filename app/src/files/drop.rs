//! Files that are chosen or dropped, and those in folders that are dropped.

use js_sys::{Array, Function, Promise, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    DataTransfer, File, FileList, FileSystemDirectoryEntry, FileSystemEntry, FileSystemFileEntry,
};

/// Most files and folders of one upload; an archive is better for more.
pub(super) const MOST: usize = 10_000;

/// A file that is to be sent.
pub(super) struct Pending {
    pub(super) file: File,
    /// Its path below the folder.
    pub(super) below: String,
}

/// The chosen files, with their paths in the chosen folder.
pub(super) fn chosen(list: &FileList) -> Vec<Pending> {
    let all = (0..list.length()).filter_map(|index| list.get(index));
    all.map(|file| {
        let within = Reflect::get(&file, &"webkitRelativePath".into());
        let within = within.ok().and_then(|within| within.as_string());
        let below = within.filter(|within| !within.is_empty());
        Pending {
            below: below.unwrap_or_else(|| file.name()),
            file,
        }
    })
    .collect()
}

/// The entries of what is dropped. They can be asked for only while the event is handled.
pub(super) fn entries(data: &DataTransfer) -> Vec<FileSystemEntry> {
    let items = data.items();
    let all = (0..items.length()).filter_map(|index| items.get(index));
    all.filter_map(|item| item.webkit_get_as_entry().ok().flatten())
        .collect()
}

/// What was in the dropped entries.
pub(super) struct Walked {
    pub(super) files: Vec<Pending>,
    /// Folders with nothing in them.
    pub(super) empty_folders: usize,
}

/// Reads the dropped entries and the folders among them.
///
/// # Errors
/// Why they cannot be uploaded.
pub(super) async fn walk(mut entries: Vec<FileSystemEntry>) -> Result<Walked, String> {
    let mut walked = Walked {
        files: Vec::new(),
        empty_folders: 0,
    };
    let mut seen = 0;
    // The first one is taken first.
    entries.reverse();
    while let Some(entry) = entries.pop() {
        seen += 1;
        if seen > MOST {
            return Err(format!(
                "These are more than {MOST} files and folders. Upload an archive, and unpack it in the sandbox."
            ));
        }
        let path = entry.full_path();
        let below = path.trim_start_matches('/').to_owned();
        let unreadable = |_| format!("{below} cannot be read.");
        if entry.is_directory() {
            let inside = inside(entry.unchecked_into()).await.map_err(unreadable)?;
            walked.empty_folders += usize::from(inside.is_empty());
            entries.extend(inside.into_iter().rev());
        } else {
            let file = file(entry.unchecked_into()).await.map_err(unreadable)?;
            walked.files.push(Pending { file, below });
        }
    }
    Ok(walked)
}

/// The entries of a folder.
async fn inside(folder: FileSystemDirectoryEntry) -> Result<Vec<FileSystemEntry>, JsValue> {
    let reader = folder.create_reader();
    let mut inside = Vec::new();
    loop {
        // Browsers return some of them at a time.
        let mut read = |done: &Function, failed: &Function| {
            reader.read_entries_with_callback_and_callback(done, failed)
        };
        let some: Array = answer(&mut read).await?.unchecked_into();
        if some.length() == 0 || inside.len() > MOST {
            return Ok(inside);
        }
        inside.extend(some.iter().map(JsCast::unchecked_into));
    }
}

async fn file(entry: FileSystemFileEntry) -> Result<File, JsValue> {
    let mut read = |done: &Function, failed: &Function| {
        entry.file_with_callback_and_callback(done, failed);
        Ok(())
    };
    Ok(answer(&mut read).await?.unchecked_into())
}

/// What a function with callbacks answers.
async fn answer(
    call: &mut dyn FnMut(&Function, &Function) -> Result<(), JsValue>,
) -> Result<JsValue, JsValue> {
    let promise = Promise::new(&mut |done, failed| {
        if let Err(error) = call(&done, &failed) {
            // A function of the browser's own does not fail.
            let _ = failed.call1(&JsValue::UNDEFINED, &error);
        }
    });
    JsFuture::from(promise).await
}
