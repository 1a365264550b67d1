// Package http is the topology description plugin "http": it keeps descriptions in a catalogue, which is any HTTP service that
// answers three requests. Package reference has one in Go, of some hundred lines.
//
// # What a catalogue serves
//
// All addresses begin with the setting url.
//
//	PUT    …/groups/{group}/topologies/{epoch}   store the body for this group and epoch, in place of what was there
//	GET    …/groups/{group}/topologies/{epoch}   return that body
//	DELETE …/groups/{group}/topologies           remove the bodies of all epochs of this group
//
// A service that keeps each body as it is, and knows nothing of its content, will do.
//
// {epoch} is a decimal number from 0 to 2147483647, without leading zeros. {group} is the group's id, in which every byte that
// is not a letter of ASCII, a digit, ".", "-" or "_" is written as ~ and two upper-case hexadecimal digits of its value, and so
// are the dots of the ids "." and ".."; the empty id is a lone "~". So the segment is made of unreserved characters alone and is never a
// dot segment: no proxy, framework or file system on the way changes it, as many do with %2F and "..". Two groups never have the
// same segment; it may be up to SegmentBytesMax bytes long, is case-sensitive and serves as a key as it is. A program that wants the id
// replaces ~ by % and decodes that as in any address.
//
// # The body
//
// JSON in UTF-8, Content-Type application/json:
//
//	{"group": "orders-app",
//	 "topologyEpoch": 0,
//	 "description": {
//	   "subtopologies": [
//	     {"id": "0", "nodes": [
//	       {"type": "source",    "name": "KSTREAM-SOURCE-0000000000", "topics": ["orders"], "successors": ["KSTREAM-AGGREGATE-0000000001"]},
//	       {"type": "processor", "name": "KSTREAM-AGGREGATE-0000000001", "stores": ["counts"], "successors": ["KSTREAM-SINK-0000000002"]},
//	       {"type": "sink",      "name": "KSTREAM-SINK-0000000002", "topic": "totals", "successors": []}]}],
//	   "globalStores": [
//	     {"source": {"type": "source", …}, "processor": {"type": "processor", …}}]}}
//
// The topic of a sink is null where the application computes it per record; the topics of a source are empty where it subscribes by
// pattern. Names need not be unique and successors need not exist. The order is that in which Kafka's tools print. The answer to a GET
// may have more fields, and must have "description"; "group" and "topologyEpoch" are compared where they are there.
//
// # What the answers mean
//
//	         PUT                        GET                           DELETE
//	2xx      stored                     200: the body; 204: nothing   removed
//	404,410  transient failure          nothing is stored             removed: nothing was there
//	400, 413, 414, 415, 422, 451
//	         refused for good           failure                       failure
//	other    transient failure          failure                       failure
//
// Refused for good means that no member of the group is asked for this topology again until its epoch advances, which Kafka's
// own client never does; so it is for what will not get better by waiting. Wrong credentials and a wrong address are no such
// thing, which is why 401, 403, 404 and 405 are not in that row. Redirects are not followed: the body and the credentials
// would go to somebody else, so they are failures that say where they point.
//
// The reason that a client and the log see is the text of "detail", "message", "title" or "error" of a JSON answer (RFC 9457), or
// the answer itself if it is text/plain; ReasonBytesMax of it.
//
// Each request is idempotent and may come twice. PUT and DELETE of one group may overlap, when an outcome was lost and a
// call is made again; the one that arrives last counts. After a time-out a request may still be under way while the next one
// is made.
//
// # Traces and credentials
//
// Each request carries the W3C trace context (traceparent, tracestate) of the call's span, so a service that is traced shows up
// below it. A header with credentials comes from the configuration, from an environment variable, or from a file that is read
// anew for each request, as tokens that are rotated need it. A proxy is taken from HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
//
// File map:
//
//	http.go      the plugin: three calls, Close
//	request.go   one request and its answer
//	status.go    what an answer means, and its reason
//	document.go  the body
//	segment.go   group ids in addresses
//	config.go    Config, credentials, TLS
//	factory.go   its settings
package http
