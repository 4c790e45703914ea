//! The host over HTTP: a table of routes from which the router and the OpenAPI document are both made.
