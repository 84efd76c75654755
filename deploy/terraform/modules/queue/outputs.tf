output "topic" {
  description = "Name of the topic; available once its publishers have their permissions."
  value       = google_pubsub_topic.this.name
  depends_on  = [google_pubsub_topic_iam_member.publisher]
}

output "subscription" {
  description = "Name of the subscription; available once its subscribers have their permissions."
  value       = google_pubsub_subscription.this.name
  depends_on = [
    google_pubsub_subscription_iam_member.subscriber,
    google_pubsub_subscription_iam_member.viewer,
  ]
}

output "urgent_subscription" {
  description = "Name of the subscription to urgent notifications; available once its subscribers have their permissions; null without one."
  value       = one(google_pubsub_subscription.urgent[*].name)
  depends_on = [
    google_pubsub_subscription_iam_member.subscriber,
    google_pubsub_subscription_iam_member.viewer,
  ]
}

output "broadcast_topic" {
  description = "Name of the broadcast topic; available once publishers and listeners have their permissions; null without broadcasts."
  value       = one(google_pubsub_topic.broadcast[*].name)
  depends_on = [
    google_pubsub_topic_iam_member.broadcaster,
    google_pubsub_topic_iam_member.listener,
    google_project_iam_member.listener,
  ]
}
