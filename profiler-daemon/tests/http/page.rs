//! How the page goes out: to browsers only, under a strict policy, and kept by them until it
//! changes.

use axum::http::{HeaderValue, header};

use super::{ask, get, request, server};

const BROWSER: &str =
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

fn accepting(target: &str, accept: &'static str) -> axum::http::Request<axum::body::Body> {
    let mut request = request("GET", target);
    request
        .headers_mut()
        .insert(header::ACCEPT, HeaderValue::from_static(accept));
    request
}

#[tokio::test]
async fn browsers_get_the_page_and_others_the_first_screen() {
    // Check that only a browser gets the page at the root, others the text of /top, and that caches
    // are told so.
    let page = ask(server(), accepting("/", BROWSER)).await;
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header(header::CONTENT_TYPE),
        "text/html; charset=utf-8"
    );
    assert!(page.text().starts_with("<!doctype html>"));
    let varies = page.headers.get_all(header::VARY).iter();
    assert!(varies.into_iter().any(|value| value == "accept"));
    for accept in ["*/*", "text/plain", "application/json"] {
        let screen = ask(server(), accepting("/", accept)).await;
        assert_eq!(
            screen.header(header::CONTENT_TYPE),
            "text/plain; charset=utf-8"
        );
        assert_eq!(screen.text(), get("/top").await.text(), "{accept}");
    }
}

#[tokio::test]
async fn files_go_out_under_a_strict_policy() {
    // Check the types and headers of files of the page, and that the policy lets nothing in from
    // elsewhere or inline.
    for (name, kind) in [
        ("main.js", "text/javascript; charset=utf-8"),
        ("flame/layout.js", "text/javascript; charset=utf-8"),
        ("base.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("index.html", "text/html; charset=utf-8"),
    ] {
        let file = get(&format!("/ui/{name}")).await;
        assert_eq!(file.status, 200, "{name}");
        assert_eq!(file.header(header::CONTENT_TYPE), kind);
        let policy = file.header(header::CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'self';"), "{policy}");
        for hole in ["unsafe", "http:", "https:", "data:", "blob:", "*"] {
            assert!(!policy.contains(hole), "{policy}");
        }
        assert_eq!(file.header(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(file.header(header::REFERRER_POLICY), "no-referrer");
        assert_eq!(file.header(header::X_FRAME_OPTIONS), "DENY");
    }
}

#[tokio::test]
async fn speedscope_goes_out_under_a_policy_of_its_own() {
    // Check that speedscope, its files and its licences are there, compressed for who takes that,
    // and that its policy lets in neither scripts made of text nor anything from elsewhere.
    for (name, kind) in [
        ("", "text/html; charset=utf-8"),
        ("no_eval.js", "text/javascript; charset=utf-8"),
        ("speedscope-Y2522XSH.js", "text/javascript; charset=utf-8"),
        ("LICENSE", "text/plain; charset=utf-8"),
        ("source-code-pro.LICENSE.md", "text/plain; charset=utf-8"),
    ] {
        let file = get(&format!("/speedscope/{name}")).await;
        assert_eq!(file.status, 200, "{name}");
        assert_eq!(file.header(header::CONTENT_TYPE), kind);
        let policy = file.header(header::CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        for hole in ["'unsafe", "http:", "https:", "data:", "blob:", "*"] {
            assert!(!policy.contains(hole), "{policy}");
        }
    }
    let mut packed = request("GET", "/speedscope/speedscope-Y2522XSH.js");
    packed
        .headers_mut()
        .insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let packed = ask(server(), packed).await;
    assert_eq!(packed.header(header::CONTENT_ENCODING), "gzip");
    assert!(packed.body.len() < 200_000, "{}", packed.body.len());
    for path in ["/speedscope/nothing.js", "/speedscope/../Cargo.toml"] {
        assert_eq!(get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn what_a_browser_has_is_not_sent_again() {
    // Check that a file whose tag is known, weak or not, is answered without a body, so is any file
    // to a browser that has one whatever its tag is, and one whose tag is another has a body.
    let first = get("/ui/main.js").await;
    let tag = first.header(header::ETAG).to_owned();
    assert_eq!(first.header(header::CACHE_CONTROL), "no-cache");
    for (known, status) in [
        (tag.clone(), 304),
        (format!("\"other\", {tag}"), 304),
        (tag.trim_start_matches("W/").to_owned(), 304),
        ("*".to_owned(), 304),
        ("\"*\"".to_owned(), 200),
        ("\"other\"".to_owned(), 200),
    ] {
        let mut again = request("GET", "/ui/main.js");
        again
            .headers_mut()
            .insert(header::IF_NONE_MATCH, known.parse().unwrap());
        let answer = ask(server(), again).await;
        assert_eq!(answer.status.as_u16(), status, "{known}");
        assert_eq!(answer.body.is_empty(), status == 304);
        assert_eq!(answer.header(header::ETAG), tag);
    }
}

#[tokio::test]
async fn only_files_of_the_page_are_there() {
    // Check that no other path below the page's folder leads to a file, and that foreign hosts get
    // none.
    for path in [
        "/ui/",
        "/ui/nothing.js",
        "/ui/../Cargo.toml",
        "/ui/%2e%2e/Cargo.toml",
        "/ui/..%2f..%2fCargo.toml",
        "/ui/%ff",
    ] {
        let answer = get(path).await;
        assert!(
            [400, 404].contains(&answer.status.as_u16()),
            "{path}: {}",
            answer.status
        );
    }
    for target in ["/", "/ui/main.js"] {
        let mut foreign = accepting(target, BROWSER);
        foreign
            .headers_mut()
            .insert(header::HOST, HeaderValue::from_static("evil.example"));
        ask(server(), foreign).await.problem(421);
    }
}
