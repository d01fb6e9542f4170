package main

import (
	"fmt"
	"sync"
)

//go:noinline
func outer(depth int, x int) int {
	var pad [64]int
	pad[depth%64] = x
	if depth == 0 {
		return leaf(x) + pad[0]
	}
	return outer(depth-1, x+1) + pad[depth%64]
}

//go:noinline
func leaf(x int) int { return x * 3 }

func main() {
	var wg sync.WaitGroup
	var mu sync.Mutex
	sum := 0
	for g := 0; g < 20; g++ {
		wg.Add(1)
		go func(g int) {
			defer wg.Done()
			r := outer(199, g)
			mu.Lock()
			sum += r
			mu.Unlock()
		}(g)
	}
	wg.Wait()
	fmt.Println(sum)
}
