//! All routes, and the router built from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, any};
use http::{Method, StatusCode};

use super::api::Api;
use super::route::{Route, not_allowed};
use super::routes;
use fdguard_http::Problem;
use fdguard_http::guard;

/// All routes, group by group.
pub(super) fn routes() -> Vec<Route> {
    let groups = [
        routes::health::routes(),
        routes::clients::routes(),
        routes::sessions::routes(),
        routes::exec::routes(),
        routes::scopes::routes(),
        routes::archive::routes(),
        routes::calls::routes(),
    ];
    groups.into_iter().flatten().collect()
}

/// The router of all of them.
pub(super) fn router(api: &Arc<Api>) -> Router {
    let mut by_path: BTreeMap<&'static str, Vec<Route>> = BTreeMap::new();
    for route in routes() {
        by_path.entry(route.path).or_default().push(route);
    }
    let mut router = Router::new();
    for (path, routes) in by_path {
        router = router.route(path, methods(api, routes));
    }
    let mcp = Arc::clone(api);
    router = router.route(
        "/mcp",
        any(move |request| answer_mcp(Arc::clone(&mcp), request)),
    );
    let api = Arc::clone(api);
    router.fallback(move |request: Request| {
        let api = Arc::clone(&api);
        async move { unknown(&api, &request) }
    })
}

fn methods(api: &Arc<Api>, routes: Vec<Route>) -> MethodRouter {
    let names: Vec<&str> = routes.iter().map(|route| route.method.as_str()).collect();
    let allowed: Arc<str> = names.join(", ").into();
    let mut methods = MethodRouter::new();
    for route in routes {
        let (api, route) = (Arc::clone(api), Arc::new(route));
        methods = methods.on(filter(&route.method), move |request: Request| {
            let (api, route) = (Arc::clone(&api), Arc::clone(&route));
            async move { route.answer(api, request).await }
        });
    }
    let api = Arc::clone(api);
    methods.fallback(move |request: Request| {
        let (api, allowed) = (Arc::clone(&api), Arc::clone(&allowed));
        async move {
            let known = guard::check_token(&api.settings.access(), request.headers());
            let problem = known.err().unwrap_or_else(|| not_allowed(allowed));
            problem.into_response()
        }
    })
}

fn filter(method: &Method) -> MethodFilter {
    // The table has no other methods.
    MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET)
}

/// Not a route of the table: MCP is another protocol. Access control is the same.
async fn answer_mcp(api: Arc<Api>, request: Request) -> Response {
    let known = guard::check_token(&api.settings.access(), request.headers());
    if let Err(problem) = known {
        return problem.into_response();
    }
    // A stream that waits for news is bounded as a connection, not as a request.
    let place = match *request.method() {
        Method::GET => None,
        _ => match api.place() {
            Ok(place) => Some(place),
            Err(problem) => return problem.into_response(),
        },
    };
    let (parts, body) = request.into_parts();
    if api.mcp.is_full_for(&parts.method, &parts.headers).await {
        let detail = "too many MCP sessions: the limit is reached";
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "full", detail);
        return problem.into_response();
    }
    let response = api.mcp.answer(Request::from_parts(parts, body)).await;
    fdguard_http::until_sent(response, place)
}

/// A caller without the token does not learn which paths exist.
fn unknown(api: &Api, request: &Request) -> Response {
    let known = guard::check_token(&api.settings.access(), request.headers());
    let problem = known.err().unwrap_or_else(|| {
        let detail = format!("no such endpoint: {}", request.uri().path());
        Problem::new(StatusCode::NOT_FOUND, "unknown", detail)
    });
    problem.into_response()
}
