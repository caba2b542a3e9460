//! Static files: embedded by build.rs, or read from disk by a debug build. Their path has a digest of the
//! content, so caches never go stale.

use std::{
    collections::HashMap,
    sync::{LazyLock, OnceLock},
};

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
// Not under its own name: the included code has its path in full.
use memory_serve::{Asset as File, CacheControl, MemoryServe};
use osb_app::ui::AssetRoot;
use tower::ServiceExt;

/// Whether there is the wasm that hydrates pages.
pub(super) fn hydrates() -> bool {
    site::hydrates()
}

/// Path of the files.
pub(super) fn root() -> AssetRoot {
    AssetRoot(format!("/console/assets/{}", site::id()).into())
}

/// Routes of the files.
pub(super) fn router() -> Router {
    let AssetRoot(path) = root();
    // A route, not a fallback: the console's own routes below it would come first.
    Router::new().nest(&path, Router::new().route("/{*file}", get(serve)))
}

async fn serve(request: Request) -> Response {
    FILES.serve(request).await
}

static FILES: LazyLock<Files> = LazyLock::new(|| Files::new(site::files()));

/// The files in the executable.
#[cfg(embeds_site)]
mod site {
    use memory_serve::Asset;

    pub(super) fn hydrates() -> bool {
        matches!(env!("OSB_SITE_HYDRATES").as_bytes(), b"true")
    }

    pub(super) fn id() -> &'static str {
        env!("OSB_SITE_ID")
    }

    pub(super) fn files() -> &'static [Asset] {
        let folders: &[(&str, &[Asset])] =
            include!(concat!(env!("OUT_DIR"), "/memory_serve_assets.rs"));
        folders.first().map_or(&[], |(_, files)| files)
    }
}

/// The files as they lie on disk when the program first needs them.
#[cfg(not(embeds_site))]
mod site {
    use std::{
        env,
        hash::{DefaultHasher, Hash, Hasher},
        path::{Path, PathBuf},
        sync::LazyLock,
    };

    use memory_serve::Asset;
    use walkdir::WalkDir;

    struct Site {
        id: String,
        hydrates: bool,
        files: &'static [Asset],
    }

    static SITE: LazyLock<Site> = LazyLock::new(|| {
        let folder = folder().unwrap_or_default();
        // Sizes and times stand for the content: tests start a server each.
        let mut hasher = DefaultHasher::new();
        let files: Vec<Asset> = WalkDir::new(&folder)
            .sort_by_file_name()
            .into_iter()
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_file())
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                (metadata.len(), metadata.modified().ok()).hash(&mut hasher);
                asset(&folder, entry.path())
            })
            .collect();
        let has = |route: &str| files.iter().any(|file| file.route == route);
        Site {
            id: format!("{:016x}", hasher.finish()),
            hydrates: has("/pkg/osb.js") && has("/pkg/osb_bg.wasm"),
            files: Vec::leak(files),
        }
    });

    /// The site of the checkout whose package Cargo runs, or in which this program lies. Not of the one
    /// that it was compiled in: checkouts may share what is compiled.
    fn folder() -> Option<PathBuf> {
        let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let starts = package.into_iter().chain(env::current_exe().ok());
        let sites = starts.map(|start| {
            let mut sites = start.ancestors().map(|above| above.join("target/site"));
            sites.find(|site| site.is_dir())
        });
        sites.flatten().next()
    }

    fn asset(folder: &Path, path: &Path) -> Option<Asset> {
        let name = path.strip_prefix(folder).ok()?.to_str()?;
        let content_type = mime_guess::from_path(path).first_or_octet_stream();
        Some(Asset {
            route: format!("/{name}").leak(),
            path: path.to_str()?.to_owned().leak(),
            etag: "",
            content_type: content_type.to_string().leak(),
            bytes: None,
            is_compressed: false,
            should_compress: false,
        })
    }

    pub(super) fn hydrates() -> bool {
        SITE.hydrates
    }

    pub(super) fn id() -> &'static str {
        &SITE.id
    }

    pub(super) fn files() -> &'static [Asset] {
        SITE.files
    }
}

/// The files. Most are in the executable as Brotli only: unpacked, all of them would take more memory than
/// the server itself.
struct Files {
    /// What is compressed, as it is.
    compressed: Router,
    /// Each file for browsers that do not take it so: those on plain HTTP, for example, take gzip only.
    /// Made when one first asks for the file.
    others: HashMap<&'static str, (&'static File, OnceLock<Router>)>,
}

impl Files {
    fn new(assets: &'static [File]) -> Self {
        let compressed = assets.iter().filter(|asset| asset.is_compressed);
        // To the library they are files like any others.
        let compressed = compressed.map(|asset| File {
            is_compressed: false,
            should_compress: false,
            ..*asset
        });
        let others = assets
            .iter()
            .map(|asset| (asset.route, (asset, OnceLock::new())));
        Self {
            compressed: router_of(Vec::leak(compressed.collect())),
            others: others.collect(),
        }
    }

    async fn serve(&'static self, request: Request) -> Response {
        let Some((asset, other)) = self.others.get(request.uri().path()) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let asset: &'static File = asset;
        if asset.is_compressed && accepts_brotli(request.headers()) {
            let mut response = answer(self.compressed.clone(), request).await;
            let is_sent = response.status() == StatusCode::OK;
            let headers = response.headers_mut();
            let vary = HeaderValue::from_static("accept-encoding");
            headers.insert(header::VARY, vary);
            if is_sent {
                let brotli = HeaderValue::from_static("br");
                headers.insert(header::CONTENT_ENCODING, brotli);
            }
            return response;
        }
        let router = match other.get() {
            Some(router) => router.clone(),
            None => {
                let make = || router_of(std::slice::from_ref(asset));
                let made = tokio::task::spawn_blocking(move || other.get_or_init(make).clone());
                match made.await {
                    Ok(router) => router,
                    Err(error) => {
                        tracing::error!(%error, file = asset.route, "a file of the console cannot be served");
                        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
                    }
                }
            }
        };
        answer(router, request).await
    }
}

async fn answer(router: Router, request: Request) -> Response {
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn router_of(assets: &'static [File]) -> Router {
    let embedded = assets.iter().all(|asset| asset.bytes.is_some());
    // A debug build reads them from disk, where they may change under the same path.
    let cache = if embedded {
        CacheControl::Long
    } else {
        CacheControl::NoCache
    };
    MemoryServe::new(assets)
        .index_file(None)
        .cache_control(cache)
        .enable_brotli(false)
        .enable_gzip(embedded)
        .into_router()
}

fn accepts_brotli(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut offers = offers
        .filter_map(|it| it.to_str().ok())
        .flat_map(|it| it.split(','));
    offers.any(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let refuses = |part: &str| {
            let quality = part.strip_prefix("q=").map(str::parse::<f32>);
            quality.is_some_and(|it| it.is_ok_and(|it| it <= 0.0))
        };
        parts.next() == Some("br") && !parts.any(refuses)
    })
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};

    use super::*;

    const TEXT: &str = "body{color:red}body{color:red}body{color:red}body{color:red}";
    /// `TEXT`, compressed by `brotli`.
    const BROTLI: &[u8] = &[
        0x1f, 0x3b, 0x00, 0xf8, 0x05, 0x74, 0x63, 0xb5, 0xdb, 0xa2, 0xde, 0x26, 0x0c, 0xde, 0x44,
        0x0c, 0xa7, 0x42, 0x80, 0x2e, 0xd1, 0x5e, 0x31, 0x38, 0xdc, 0x7a,
    ];

    fn files() -> &'static Files {
        let asset = |route, bytes, is_compressed| File {
            route,
            path: "/nowhere",
            etag: "digest",
            content_type: "text/css",
            bytes: Some(bytes),
            is_compressed,
            should_compress: is_compressed,
        };
        let assets = vec![
            asset("/a.css", BROTLI, true),
            asset("/vendor/b.woff2", b"font", false),
        ];
        Box::leak(Box::new(Files::new(Vec::leak(assets))))
    }

    /// Status, encoding, whether it varies, and the body.
    async fn get(
        file: &str,
        headers: &[(header::HeaderName, &str)],
    ) -> (u16, String, bool, Vec<u8>) {
        let mut request = Request::get(file);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let answer = files().serve(request.body(Body::empty()).unwrap()).await;
        let of = |name| {
            let value: Option<&HeaderValue> = answer.headers().get(name);
            value.map(|it| it.to_str().unwrap().to_owned())
        };
        let (encoding, varies) = (of(header::CONTENT_ENCODING), of(header::VARY).is_some());
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, encoding.unwrap_or_default(), varies, body.into())
    }

    #[tokio::test]
    async fn each_browser_gets_an_encoding_that_it_accepts() {
        for (offer, encoding) in [
            ("gzip, deflate, br, zstd", "br"),
            ("br;q=0.5", "br"),
            ("br;q=0, gzip", "gzip"),
            ("gzip, deflate", "gzip"),
            ("identity", ""),
            ("brotli", ""),
        ] {
            let offers = [(header::ACCEPT_ENCODING, offer)];
            let (status, used, varies, body) = get("/a.css", &offers).await;
            assert_eq!(
                (status, used.as_str(), varies),
                (200, encoding, true),
                "{offer}"
            );
            match encoding {
                "br" => assert_eq!(body, BROTLI),
                "gzip" => assert_eq!(body[..2], [0x1f, 0x8b]),
                _ => assert_eq!(body, TEXT.as_bytes()),
            }
            let (status, used, varies, body) = get("/vendor/b.woff2", &offers).await;
            assert_eq!((status, used.as_str(), varies), (200, "", false), "{offer}");
            assert_eq!(body, b"font");
        }
    }

    #[tokio::test]
    async fn what_a_browser_has_is_not_sent_again() {
        for offer in ["br", "gzip"] {
            let headers = [
                (header::ACCEPT_ENCODING, offer),
                (header::IF_NONE_MATCH, "\"digest\""),
            ];
            let (status, encoding, varies, body) = get("/a.css", &headers).await;
            assert_eq!(
                (status, encoding.as_str(), varies),
                (304, "", true),
                "{offer}"
            );
            assert!(body.is_empty());
        }
        assert_eq!(get("/none.css", &[]).await.0, 404);
    }

    #[tokio::test]
    async fn a_file_is_unpacked_for_the_first_that_needs_it() {
        let files = files();
        let unpacked = || {
            let made = files.others.values().filter(|(_, it)| it.get().is_some());
            made.map(|(file, _)| file.route).collect::<Vec<_>>()
        };
        for (offer, made) in [("br", vec![]), ("gzip", vec!["/a.css"])] {
            let request = Request::head("/a.css").header(header::ACCEPT_ENCODING, offer);
            let answer = files.serve(request.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.headers()[header::CONTENT_ENCODING], offer);
            assert_eq!(unpacked(), made);
        }
    }
}
