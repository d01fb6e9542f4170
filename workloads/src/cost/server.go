// A server of JSON over HTTP and its clients, in one process, for ever.
package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
)

type item struct {
	Name  string            `json:"name"`
	Sizes []float64         `json:"sizes"`
	Tags  map[string]string `json:"tags"`
}

func answer(w http.ResponseWriter, r *http.Request) {
	var items []item
	if err := json.NewDecoder(r.Body).Decode(&items); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for i := range items {
		items[i].Sizes = append(items[i].Sizes, float64(i))
	}
	json.NewEncoder(w).Encode(items)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	items := make([]item, 20)
	for i := range items {
		items[i] = item{"one of many", []float64{1.5, 2.25, 3}, map[string]string{"kind": "test", "colour": "none"}}
	}
	body, err := json.Marshal(items)
	if err != nil {
		panic(err)
	}
	for i := 0; i < 4; i++ {
		go func() {
			for {
				response, err := http.Post("http://"+listener.Addr().String(), "application/json", bytes.NewReader(body))
				if err != nil {
					panic(err)
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		}()
	}
	panic(http.Serve(listener, http.HandlerFunc(answer)))
}
