//! The viewer speedscope, compiled in: a call tree of this daemon opens in it without anything from
//! elsewhere. What it is and how a newer one is had says `ui/third-party/speedscope/README.md`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};

use super::files::{Site, files};
use super::unknown;

/// Its own address. It shows the profile that stands behind `#profileURL=`.
pub(super) const ROUTE: &str = "/speedscope/";

/// Where its files are.
pub(super) const FILES_ROUTE: &str = "/speedscope/{*file}";

/// What it may do: run and show its own files, and ask this server. It compiles WebAssembly of its
/// own, and makes an empty style element, whose hash stands here, to which its script adds rules;
/// no style or script comes from text.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; \
     style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; font-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'",
);

/// The page around it.
const OWN: Site = Site {
    files: files!["../../ui/speedscope/": "index.html", "no_eval.js"],
    policy: POLICY,
};

/// Its files as they came.
const TAKEN: Site = Site {
    files: files![
        "../../ui/third-party/speedscope/":
        "LICENSE",
        "SourceCodePro-Regular.ttf-ILST5JV6.woff2",
        "favicon-16x16-VSI62OPJ.png",
        "favicon-32x32-3EB2YCUY.png",
        "source-code-pro.LICENSE.md",
        "speedscope-GHPHNKXC.css",
        "speedscope-Y2522XSH.js",
    ],
    policy: POLICY,
};

/// `GET /speedscope/`.
pub(super) async fn index(headers: HeaderMap) -> Response {
    let index = OWN.respond("index.html", &headers);
    index.expect("speedscope has an index")
}

/// `GET /speedscope/…`: a file of it.
pub(super) async fn file(name: Result<Path<String>, PathRejection>, request: Request) -> Response {
    let found = name.ok().and_then(|Path(name)| {
        [OWN, TAKEN]
            .iter()
            .find_map(|site| site.respond(&name, request.headers()))
    });
    match found {
        Some(response) => response,
        None => unknown::not_found(request).await.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::assert_files_of;
    use super::{OWN, TAKEN};

    #[test]
    fn every_file_is_served() {
        // Check that the tables name what was taken from speedscope and what is around it, and that
        // the index and the style name only files that are there.
        assert_files_of(OWN.files, "ui/speedscope", |_| true);
        let notes = ["README.md", "SOURCE.json"];
        assert_files_of(TAKEN.files, "ui/third-party/speedscope", |name| {
            !notes.contains(&name)
        });
        let names =
            |site: &super::Site| site.files.iter().map(|file| file.name).collect::<Vec<_>>();
        let known = [names(&OWN), names(&TAKEN)].concat();
        let index = std::str::from_utf8(OWN.files[0].content).unwrap();
        let mut referenced = 0;
        for part in index.split("\"/speedscope/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(known.contains(&name), "{name}");
            referenced += 1;
        }
        assert_eq!(referenced, 5);
        let style = TAKEN.files.iter().find(|file| file.name.ends_with(".css"));
        let style = std::str::from_utf8(style.unwrap().content).unwrap();
        let font = style.split("url(\"./").nth(1).unwrap();
        let font = font.split('"').next().unwrap();
        assert!(known.contains(&font), "{font}");
    }
}
