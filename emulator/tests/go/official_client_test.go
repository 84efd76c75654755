// The official Go client, as an application uses it, against the emulator that PUBSUB_EMULATOR_HOST
// names, or, with PSTEST=1, against the fake server of the client's own package.
//
// Nothing here waits for a length of time: everything waits for what has to happen, and gives up
// after patience.
package official

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub"
	"cloud.google.com/go/pubsub/pstest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const patience = 30 * time.Second

var (
	client *pubsub.Client
	names  int64
)

func TestMain(m *testing.M) {
	if os.Getenv("PSTEST") == "1" {
		os.Setenv("PUBSUB_EMULATOR_HOST", pstest.NewServer().Addr)
	}
	var err error
	if client, err = pubsub.NewClient(context.Background(), "official-client"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Only for the test's own goroutine, as is `ok`: no other may end a test.
func same(t *testing.T, what string, found, expected interface{}) {
	t.Helper()
	if !reflect.DeepEqual(found, expected) {
		t.Fatalf("%s: %v, expected %v", what, found, expected)
	}
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func name(kind string) string {
	return fmt.Sprintf("%s-%d-%d", kind, time.Now().UnixNano(), atomic.AddInt64(&names, 1))
}

func newTopic(t *testing.T) *pubsub.Topic {
	topic, err := client.CreateTopic(limited(t), name("t"))
	ok(t, err)
	return topic
}

func subscribe(t *testing.T, topic *pubsub.Topic, config pubsub.SubscriptionConfig) *pubsub.Subscription {
	config.Topic = topic
	subscription, err := client.CreateSubscription(limited(t), name("s"), config)
	ok(t, err)
	return subscription
}

func publish(t *testing.T, topic *pubsub.Topic, messages ...*pubsub.Message) []string {
	var results []*pubsub.PublishResult
	for _, message := range messages {
		results = append(results, topic.Publish(limited(t), message))
	}
	var ids []string
	for _, result := range results {
		id, err := result.Get(limited(t))
		ok(t, err)
		ids = append(ids, id)
	}
	return ids
}

func text(text string) *pubsub.Message {
	return &pubsub.Message{Data: []byte(text)}
}

// Hands each message to each, one after the other, until it returns true. It runs each on other
// goroutines, where no test may end: each keeps what it gets, to be compared afterwards.
func receive(t *testing.T, subscription *pubsub.Subscription, each func(*pubsub.Message) bool) {
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	var one sync.Mutex
	over := false
	err := subscription.Receive(ctx, func(_ context.Context, message *pubsub.Message) {
		one.Lock()
		defer one.Unlock()
		if over {
			message.Nack()
		} else if each(message) {
			over = true
			cancel()
		}
	})
	ok(t, err)
	if !over {
		t.Fatal("too few messages arrived")
	}
}

func TestMessagesOfAKeyArriveInOrderAlsoAfterANack(t *testing.T) {
	topic := newTopic(t)
	topic.EnableMessageOrdering = true
	subscription := subscribe(t, topic, pubsub.SubscriptionConfig{EnableMessageOrdering: true})
	const count, back = 30, 10
	keys := []string{"a", "b", "c"}
	for _, key := range keys {
		var messages []*pubsub.Message
		for number := 0; number < count; number++ {
			messages = append(messages, &pubsub.Message{Data: []byte(strconv.Itoa(number)), OrderingKey: key})
		}
		publish(t, topic, messages...)
	}
	done, givenBack := map[string][]int{}, map[string]bool{}
	position := func(key string, wanted int) int {
		for at, number := range done[key] {
			if number == wanted {
				return at
			}
		}
		return -1
	}
	receive(t, subscription, func(message *pubsub.Message) bool {
		key := message.OrderingKey
		number, _ := strconv.Atoi(string(message.Data))
		if number == back && !givenBack[key] {
			givenBack[key] = true
			message.Nack()
		} else {
			done[key] = append(done[key], number)
			message.Ack()
		}
		for _, key := range keys {
			numbers := done[key]
			if position(key, back) < 0 || numbers[len(numbers)-1] != count-1 {
				return false
			}
		}
		return true
	})
	for _, key := range keys {
		// Later ones may have been on their way before the nack; they come again after it.
		for number := 0; number < back; number++ {
			same(t, "before the nack", done[key][number], number)
		}
		for at, number := range done[key][position(key, back):] {
			same(t, "from the nack on", number, back+at)
		}
	}
}

func TestWhatAlwaysFailsGoesToTheDeadLetterTopic(t *testing.T) {
	topic, dead := newTopic(t), newTopic(t)
	letters := subscribe(t, dead, pubsub.SubscriptionConfig{})
	policy := &pubsub.DeadLetterPolicy{DeadLetterTopic: dead.String(), MaxDeliveryAttempts: 5}
	subscription := subscribe(t, topic, pubsub.SubscriptionConfig{DeadLetterPolicy: policy})
	publish(t, topic, &pubsub.Message{Data: []byte("poison"), Attributes: map[string]string{"colour": "red"}})
	var attempts []int
	receive(t, subscription, func(message *pubsub.Message) bool {
		if message.DeliveryAttempt == nil {
			t.Error("the attempt is not counted")
			return true
		}
		attempts = append(attempts, *message.DeliveryAttempt)
		message.Nack()
		return len(attempts) == 5
	})
	same(t, "attempts", attempts, []int{1, 2, 3, 4, 5})
	var letter *pubsub.Message
	receive(t, letters, func(message *pubsub.Message) bool {
		letter = message
		message.Ack()
		return true
	})
	same(t, "text", string(letter.Data), "poison")
	same(t, "attribute", letter.Attributes["colour"], "red")
	same(t, "count", letter.Attributes["CloudPubSubDeadLetterSourceDeliveryCount"], "5")
}

func TestASeekToASnapshotBringsBackWhatWasAcknowledgedSince(t *testing.T) {
	topic := newTopic(t)
	subscription := subscribe(t, topic, pubsub.SubscriptionConfig{})
	snapshot, err := subscription.CreateSnapshot(limited(t), name("n"))
	ok(t, err)
	ids := publish(t, topic, text("again"))
	acknowledged := func() (id string) {
		receive(t, subscription, func(message *pubsub.Message) bool {
			id = message.ID
			message.Ack()
			return true
		})
		return
	}
	same(t, "first", acknowledged(), ids[0])
	ok(t, subscription.SeekToSnapshot(limited(t), snapshot.Snapshot))
	same(t, "again", acknowledged(), ids[0])
	ok(t, snapshot.Delete(limited(t)))
}

func TestAPushEndpointGetsMessagesUntilItAgrees(t *testing.T) {
	type posted struct {
		Message struct {
			MessageID  string `json:"messageId"`
			Attributes map[string]string
		}
		Subscription string
	}
	posts, answers := make(chan posted, 10), int64(0)
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		var post posted
		if json.NewDecoder(request.Body).Decode(&post) == nil {
			posts <- post
		}
		code := 204
		if atomic.AddInt64(&answers, 1) == 1 {
			code = 500
		}
		response.WriteHeader(code)
	}))
	defer server.Close()
	topic := newTopic(t)
	topic.EnableMessageOrdering = true
	config := pubsub.SubscriptionConfig{
		PushConfig:            pubsub.PushConfig{Endpoint: server.URL + "/"},
		EnableMessageOrdering: true,
	}
	subscription := subscribe(t, topic, config)
	attributes := map[string]string{"colour": "red"}
	message := func(text string) *pubsub.Message {
		return &pubsub.Message{Data: []byte(text), Attributes: attributes, OrderingKey: "a"}
	}
	ids := publish(t, topic, message("refused once"), message("next of the key"))
	// The next of a key is pushed only after the one before it was acknowledged, which is therefore
	// not pushed again.
	for _, expected := range []string{ids[0], ids[0], ids[1]} {
		select {
		case post := <-posts:
			same(t, "id", post.Message.MessageID, expected)
			same(t, "attributes", post.Message.Attributes, attributes)
			same(t, "subscription", post.Subscription, subscription.String())
		case <-time.After(patience):
			t.Fatal("it was not pushed")
		}
	}
}

func TestWhatIsMissingOrThereAlreadyIsAnErrorWithItsCode(t *testing.T) {
	topic := newTopic(t)
	_, err := client.CreateTopic(limited(t), topic.ID())
	same(t, "a second topic", status.Code(err), codes.AlreadyExists)
	_, err = client.Topic("none").Config(limited(t))
	same(t, "no topic", status.Code(err), codes.NotFound)
}
