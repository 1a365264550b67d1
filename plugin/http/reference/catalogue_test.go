package reference

import (
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func ask(c *Catalogue, method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	b, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(b)
}

// TestCatalogueChecks: what does not belong together is refused, and leaves nothing behind.
func TestCatalogueChecks(t *testing.T) {
	c := New(400, 800)
	body := func(group, epoch, extra string) string {
		return `{"group":"` + group + `","topologyEpoch":` + epoch + `,"description":{"subtopologies":[],"globalStores":[]}` + extra + `}`
	}
	for _, r := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"PUT", "/groups/a~2Fb/topologies/1", body("a/b", "1", ""), 204, ""},
		{"GET", "/groups/a~2Fb/topologies/1", "", 200, body("a/b", "1", "")},
		{"GET", "/groups/a~2Fb/topologies/0", "", 404, "nothing is stored"},
		{"PUT", "/groups/a/topologies/1", body("b", "1", ""), 422, "another group"},
		{"PUT", "/groups/a/topologies/1", body("a", "2", ""), 422, "topology epoch 2, the address of 1"},
		{"PUT", "/groups/a/topologies/1", `{"group":"a","topologyEpoch":1}`, 422, "no description"},
		{"PUT", "/groups/a/topologies/1", `{`, 422, "unexpected"},
		{"PUT", "/groups/a/topologies/01", body("a", "1", ""), 400, "no topology epoch"},
		{"PUT", "/groups/a/topologies/-1", body("a", "-1", ""), 400, "no topology epoch"},
		{"PUT", "/groups/a/topologies/2147483648", body("a", "0", ""), 400, "no topology epoch"},
		{"PUT", "/groups/a~2fb/topologies/1", body("a/b", "1", ""), 400, "no group in an address"},
		{"PUT", "/groups/a/topologies/1", body("a", "1", `,"x":"`+strings.Repeat("x", 400)+`"`), 413, "more than 400 bytes"},
		{"PUT", "/groups/b/topologies/1", body("b", "1", `,"x":"`+strings.Repeat("x", 300)+`"`), 204, ""},
		{"PUT", "/groups/c/topologies/1", body("c", "1", `,"x":"`+strings.Repeat("x", 290)+`"`), 507, "full"},
		{"POST", "/groups/a/topologies/1", "", 405, ""},
		{"DELETE", "/groups/b/topologies", "", 204, ""},
		{"DELETE", "/groups/b/topologies", "", 204, ""},
		{"PUT", "/groups/c/topologies/1", body("c", "1", `,"x":"`+strings.Repeat("x", 290)+`"`), 204, ""},
	} {
		if status, answer := ask(c, r.method, r.path, r.body); status != r.status || !strings.Contains(answer, r.answer) {
			t.Errorf("%s %s %.60s: %d %s, want %d %s", r.method, r.path, r.body, status, answer, r.status, r.answer)
		}
	}
	if n := c.Groups(); n != 2 {
		t.Errorf("%d groups", n)
	}
	for _, g := range []string{"a~2Fb", "c"} {
		ask(c, nethttp.MethodDelete, "/groups/"+g+"/topologies", "")
	}
	if c.bytes != 0 || c.Groups() != 0 {
		t.Errorf("%d bytes of %d groups are left", c.bytes, c.Groups())
	}
}
