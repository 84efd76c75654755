output "topic" {
  description = "Name of the topic, once its publishers may publish."
  value       = google_pubsub_topic.this.name
  depends_on  = [google_pubsub_topic_iam_member.publisher]
}

output "subscription" {
  description = "Name of the subscription, once its subscribers may receive."
  value       = google_pubsub_subscription.this.name
  depends_on = [
    google_pubsub_subscription_iam_member.subscriber,
    google_pubsub_subscription_iam_member.viewer,
  ]
}
