// Calls of goroutines that grow their stacks, wait, go on on other threads and panic. Writes what
// the calls of some took by its own clock to the file that it is given.
package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const goroutines = 20

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

// Its stack is moved while it is open, and others run on its thread while it sleeps.
//
//go:noinline
func nap(x int) int {
	time.Sleep(5 * time.Millisecond)
	return grow(24, x)
}

//go:noinline
func grow(depth int, x int) int {
	var pad [256]int
	pad[depth%256] = x
	if depth == 0 {
		return x
	}
	return grow(depth-1, x) + pad[(depth+1)%256]
}

//go:noinline
func take(from chan int) int { return <-from }

//go:noinline
func throw(x int) int {
	if x%2 == 0 {
		panic("even")
	}
	return x
}

//go:noinline
func catch(x int) (result int) {
	defer func() {
		if recover() != nil {
			result = -x
		}
	}()
	return throw(x)
}

func timed(sum *atomic.Int64, call func() int) int {
	began := time.Now()
	result := call()
	sum.Add(int64(time.Since(began)))
	return result
}

func main() {
	var done sync.WaitGroup
	var sum, naps, takes atomic.Int64
	for g := 0; g < goroutines; g++ {
		done.Add(1)
		go func(g int) {
			defer done.Done()
			sum.Add(int64(outer(199, g)))
			for i := 0; i < 10; i++ {
				sum.Add(int64(timed(&naps, func() int { return nap(g) })))
				sum.Add(int64(catch(i)))
			}
			pipe := make(chan int)
			go func() {
				time.Sleep(20 * time.Millisecond)
				pipe <- g
			}()
			sum.Add(int64(timed(&takes, func() int { return take(pipe) })))
		}(g)
	}
	done.Wait()
	fmt.Println(sum.Load())
	if len(os.Args) > 1 {
		truth := fmt.Sprintf("%d %d\n", naps.Load(), takes.Load())
		if err := os.WriteFile(os.Args[1], []byte(truth), 0o600); err != nil {
			panic(err)
		}
	}
}
