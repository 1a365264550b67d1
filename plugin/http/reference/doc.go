// Package reference is a topology catalogue: the service behind the plugin "http", in memory. It is the reference for those who
// write one (package http documents what it serves), and what the plugin is tested against.
//
// It checks what a careful service would: that the body is a description and belongs to the address. A service that stores
// bodies unseen is as good.
//
// File map:
//
//	catalogue.go   Catalogue, an http.Handler
//	traced.go      a span for each request
package reference
